/* paths.c - see paths.h. Pure text, touches no file. */
#include "guest/daemon/paths.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void guest_path_clean(char *path)
{
    char *out = path;
    const char *in = path;

    while (*in) {
        size_t n;
        while (*in == '/')
            in++;
        n = strcspn(in, "/");
        if (n == 0 || (n == 1 && in[0] == '.')) {
            in += n;
            continue;
        }
        if (n == 2 && in[0] == '.' && in[1] == '.') {
            while (out > path && *--out != '/') {
            }
            in += n;
            continue;
        }
        *out++ = '/';
        memmove(out, in, n);
        out += n;
        in += n;
    }
    if (out == path)
        *out++ = '/';
    *out = '\0';
}

int guest_path(const struct user *u, const char *workdir, const char *path, char to[PATH_MAX],
               struct abx_err *err)
{
    const char *base = "";
    int n;

    if (path[0] == '\0') {
        path = workdir && workdir[0] ? workdir : u->home;
        if (path[0] != '/')
            base = u->home;
    } else if (path[0] == '~') {
        if (path[1] != '\0' && path[1] != '/')
            return err_set(err, ABX_INVALID_ARGUMENT,
                           "path '%s': the home of another user is not looked up", path);
        base = u->home;
        path++;
    } else if (path[0] != '/') {
        base = u->home;
    }
    n = snprintf(to, PATH_MAX, "%s%s%s", base, base[0] ? "/" : "", path);
    if (n < 0 || n >= PATH_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "path is longer than %d bytes", PATH_MAX - 1);
    guest_path_clean(to);
    return 0;
}

const char *guest_path_name(const char *clean)
{
    const char *slash = strrchr(clean, '/');

    return slash && slash[1] ? slash + 1 : clean;
}

void guest_mode_text(unsigned mode, char to[GUEST_MODE_SIZE])
{
    static const char rwx[] = "rwxrwxrwx";
    size_t n = 0;

    if (S_ISDIR(mode))
        to[n++] = 'd';
    if (S_ISLNK(mode))
        to[n++] = 'L';
    if (S_ISBLK(mode) || S_ISCHR(mode))
        to[n++] = 'D';
    if (S_ISFIFO(mode))
        to[n++] = 'p';
    if (S_ISSOCK(mode))
        to[n++] = 'S';
    if (mode & S_ISUID)
        to[n++] = 'u';
    if (mode & S_ISGID)
        to[n++] = 'g';
    if (S_ISCHR(mode))
        to[n++] = 'c';
    if (mode & S_ISVTX)
        to[n++] = 't';
    if (n == 0)
        to[n++] = '-';
    for (size_t i = 0; i < 9; i++)
        to[n++] = mode & (1u << (8 - i)) ? rwx[i] : '-';
    to[n] = '\0';
}
