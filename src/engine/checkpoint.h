/* checkpoint.h - can this machine write the memory of processes to a file and bring them back? What that takes: CRIU 4.2 or
 * newer, a kernel with CONFIG_CHECKPOINT_RESTORE, and that `criu check` is content.
 *
 * Nothing here makes checkpoints yet; snapshots and forks take files alone. This is what they ask before they say so.
 */
#pragma once

#include <stdbool.h>

#define CHECKPOINT_TEXT_SIZE 200
#define CHECKPOINT_MAJOR 4
#define CHECKPOINT_MINOR 2

struct checkpoint {
    bool is_possible;
    char
        text[CHECKPOINT_TEXT_SIZE]; /* what is missing, else what is there; a piece of a sentence */
};

/* Tries it: runs `criu --version` and `criu check` (from the system's folders, 1 s each at most). Blocks. Uses and restores
 * nothing of the process but starts children and waits for them. */
void checkpoint_probe(struct checkpoint *ret);
/* The number in the first line of `criu --version`, "Version: 4.2" or "Version: 3.17.1 (gitid 0)". False: there is none. */
bool checkpoint_version_parse(const char *line, unsigned *ret_major, unsigned *ret_minor);
