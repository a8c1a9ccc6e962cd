/* log_pipe.h - a process that holds something until the log of another, which waits for that, says so. */
#pragma once

#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct log_pipe {
    int ends[2], own_stderr;
};

/* Before the other process is made. */
static inline void log_pipe_open(struct log_pipe *l)
{
    assert_int_equal(pipe2(l->ends, O_CLOEXEC), 0);
    l->own_stderr = -1;
}

/* In the process that holds something: returns when a line has `text` in it, or when nobody logs any more. */
static inline void log_pipe_await(const struct log_pipe *l, const char *text)
{
    FILE *f = fdopen(l->ends[0], "r");
    char line[512];

    (void)close(l->ends[1]);
    while (f && fgets(line, sizeof line, f) && !strstr(line, text))
        (void)fputs(line, stderr);
}

/* In the one that waits: its log goes there until the end. Nothing may be asserted between. */
static inline void log_pipe_begin(struct log_pipe *l)
{
    l->own_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    (void)dup2(l->ends[1], STDERR_FILENO);
}

static inline void log_pipe_end(struct log_pipe *l)
{
    if (l->own_stderr >= 0) {
        (void)dup2(l->own_stderr, STDERR_FILENO);
        (void)close(l->own_stderr);
    }
    (void)close(l->ends[0]);
    (void)close(l->ends[1]);
}
