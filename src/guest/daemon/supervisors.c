/* supervisors.c - see supervisors.h. */
#include "guest/daemon/supervisors.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macro.h"
#include "base/str.h"

#define STAT_MAX 512

/* A child of PID 1 that is, or is about to be, a supervisor. "<pid> (<name>) <state> <ppid> ..." */
static bool is_supervisor(int proc_fd, const char *pid)
{
    char path[32], text[STAT_MAX];
    _cleanup_(closep) int fd = -EBADF;
    const char *name, *end;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "%.20s/stat", pid);
    fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (n <= 0)
        return false;
    text[n] = '\0';
    name = strchr(text, '(');
    end = strrchr(text, ')');
    if (!name || !end || strncmp(end, ") Z", 3) == 0 || strncmp(end + 1, " ", 1) != 0 ||
        strlen(end) < 6 || strncmp(end + 4, "1 ", 2) != 0)
        return false;
    return strncmp(name, "(abx-supervisor)", 16) == 0 || strncmp(name, "(abx-guest)", 11) == 0;
}

void supervisors_find(struct supervisors *s)
{
    DIR *dir = opendir("/proc");
    struct dirent *e;
    size_t cap = 0;
    uint64_t pid;

    *s = (struct supervisors){ 0 };
    while (dir && (e = readdir(dir))) {
        if (!str_parse_u64(slice_str(e->d_name), INT32_MAX, &pid) || pid == (uint64_t)getpid() ||
            !is_supervisor(dirfd(dir), e->d_name))
            continue;
        if (s->n == cap) {
            pid_t *list = reallocarray(s->list, MAX((size_t)64, cap * 2), sizeof(*list));
            if (!list)
                break;
            s->list = list;
            cap = MAX((size_t)64, cap * 2);
        }
        s->list[s->n++] = (pid_t)pid;
    }
    if (dir)
        (void)closedir(dir);
}

void supervisors_done(struct supervisors *s)
{
    free(s->list);
    *s = (struct supervisors){ 0 };
}

void supervisors_heard(struct supervisors *s, pid_t pid)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->list[i] == pid) {
            s->list[i] = s->list[--s->n];
            return;
        }
    }
}

bool supervisors_left(struct supervisors *s)
{
    int fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    char pid[16];

    for (size_t i = s->n; fd >= 0 && i-- > 0;) {
        (void)snprintf(pid, sizeof(pid), "%d", s->list[i]);
        if (!is_supervisor(fd, pid))
            s->list[i] = s->list[--s->n];
    }
    fd_close(fd);
    return s->n > 0;
}
