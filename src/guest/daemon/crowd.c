/* crowd.c - see crowd.h. */
#include "guest/daemon/crowd.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define SAMPLE 64u
#define CROWD_SEEN_MAX 100000u

static bool is_process(const struct dirent *e)
{
    return e->d_name[0] >= '1' && e->d_name[0] <= '9';
}

/* State letter of /proc/<name>/stat, 0 when it is gone. */
static char state_of(int proc_fd, const char *name)
{
    char path[32], text[256];
    _cleanup_(closep) int fd = -EBADF;
    const char *end;
    ssize_t n;

    if (snprintf(path, sizeof path, "%.20s/stat", name) >= (int)sizeof path)
        return 0;
    fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (n <= 0)
        return 0;
    text[n] = '\0';
    end = strrchr(text, ')'); /* the name before it may hold anything */
    return end && end[1] == ' ' ? end[2] : 0;
}

static size_t count_to(size_t most)
{
    DIR *dir = opendir("/proc");
    const struct dirent *e;
    size_t n = 0;

    while (dir && n < most && (e = readdir(dir)))
        n += is_process(e);
    if (dir)
        (void)closedir(dir);
    return n;
}

size_t crowd_count(void)
{
    return count_to(CROWD_PROCESSES + 1);
}

bool crowd_is_bomb(size_t *ret_seen)
{
    size_t n = crowd_count(), step, i = 0, looked = 0, running = 0;
    const struct dirent *e;
    DIR *dir;

    if (ret_seen)
        *ret_seen = n;
    if (n <= CROWD_PROCESSES)
        return false;
    n = count_to(CROWD_SEEN_MAX);
    if (ret_seen)
        *ret_seen = n;
    step = MAX(n / SAMPLE, (size_t)1);
    dir = opendir("/proc");
    while (dir && looked < SAMPLE && (e = readdir(dir))) {
        char state;

        if (!is_process(e) || i++ % step != 0)
            continue;
        state = state_of(dirfd(dir), e->d_name);
        looked += state != 0;
        running += state == 'R' || state == 'D';
    }
    if (dir)
        (void)closedir(dir);
    return looked > 0 && running > looked / 2;
}
