/* replay.c - the main of every fuzz target in builds without libFuzzer.
 *
 * usage: fuzz_X FILE-OR-FOLDER...   runs the target on each file; fails when there was none
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/fd.h"

#define INPUT_MAX (8 * 1024 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool replay_file(const char *path)
{
    _cleanup_(buf_done) struct buf input = BUF_INIT(INPUT_MAX);
    struct abx_err err = { 0 };

    if (file_read(AT_FDCWD, path, &input, &err) < 0) {
        (void)fprintf(stderr, "%s: %s\n", path, err.msg);
        return false;
    }
    /* A copy of just this size, so that a sanitizer sees the first byte read past it. */
    _cleanup_(freep) uint8_t *exact = malloc(MAX(input.len, (size_t)1));
    if (!exact)
        return false;
    if (input.len > 0)
        memcpy(exact, buf_data(&input), input.len);
    (void)LLVMFuzzerTestOneInput(exact, input.len);
    return true;
}

static int is_visible(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

/* Number of files replayed, -1 on failure. */
static int replay(const char *path)
{
    struct dirent **names = NULL;
    struct stat st;

    if (stat(path, &st) < 0)
        return -1;
    if (!S_ISDIR(st.st_mode))
        return replay_file(path) ? 1 : -1;
    int count = scandir(path, &names, is_visible, alphasort);
    int done = 0;
    for (int i = 0; i < count; i++) {
        char file[4096];

        (void)snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
        done = done >= 0 && replay_file(file) ? done + 1 : -1;
        free(names[i]);
    }
    free(names);
    return count < 0 ? -1 : done;
}

int main(int argc, char **argv)
{
    int total = 0;

    for (int i = 1; i < argc; i++) {
        int n = replay(argv[i]);
        if (n < 0) {
            (void)fprintf(stderr, "%s: cannot be replayed\n", argv[i]);
            return 1;
        }
        total += n;
    }
    (void)printf("%d inputs\n", total);
    return total > 0 ? 0 : 1;
}
