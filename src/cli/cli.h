/* cli.h - what the commands of `abx` share: the command table's row, output, paths.
 *
 * A command gets argv behind its name (argv[0] is the name) and returns the exit status: 0 done,
 * 1 general failure, 2 bad usage, others by err_exit_status. Results go to stdout, messages to
 * stderr; with --json stdout holds one JSON document.
 */
#pragma once

#include <getopt.h>

#include "base/err.h"

struct command {
    const char *name;    /* "serve" */
    const char *summary; /* one line for `abx help` */
    int (*run)(int argc, char **argv);
};

/* The options that a command takes, for the completion too. */
extern const struct option serve_options[], key_options[], template_options[], doctor_options[];
int cmd_serve(int argc, char **argv);
int cmd_key(int argc, char **argv);
int cmd_template(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_completion(int argc, char **argv);
/* Executes libexec/abx-client with the command; returns only when that fails. */
int cmd_client(int argc, char **argv);

#define CLI_DATA_DIR "/var/lib/abx"
#define CLI_CACHE_DIR "/var/cache/abx"
#define CLI_RUN_DIR "/run/abx"
#define CLI_LOCAL_DIR CLI_RUN_DIR "/local" /* LOCAL_SERVICE_DIR of the client */

/* First of all in main: a closed standard descriptor would become one of our sockets or files. What is put there refuses what
 * it is for, so that reading and writing still fail. */
void cli_keep_standard_places(void);
/* Last of all in main: flushes standard output. Returns `status`, or 1 in place of 0 with a message when something of the
 * output could not be written; that is said once, however often this is called. */
int cli_end(int status);
/* Prints `text` in quotes of the shell. */
void cli_print_shell_word(const char *text);

/* Prints "abx: <message>" to stderr and returns the exit status that fits `err`. */
int cli_fail(const struct abx_err *err);
/* Prints "abx <command>: <message>" and a hint to --help; returns 2. */
int cli_usage(const char *command, const char *fmt, ...) _printf_(2, 3);

/* After a bad option, which getopt has named (it says argv[0]): the hint only; returns 2. */
int cli_bad_option(const char *command);

/* Path of a program of libexec ("abx-engine"): beside this binary in libexec/ when run from a build
 * tree, else in ../libexec/abx when only root or the caller could have put it there (an installed tree
 * that was moved), else the installed folder; ABX_LIBEXEC_DIR overrides. NOT_FOUND names all places. */
int cli_libexec(const char *program, char *to, size_t size, struct abx_err *err);

/* Makes `path` absolute (against the working directory) without resolving links. INVALID_ARGUMENT
 * names `option` when the path is empty or too long. */
int cli_absolute(const char *option, const char *path, char *to, size_t size, struct abx_err *err);

/* Size in bytes: a whole number and K, M, G or T (powers of 1024, small letters too; Ki and KiB are the same), or alone,
 * when it counts `unit` bytes. */
struct cli_size {
    uint64_t unit;
    uint64_t min, max; /* bytes */
};
/* INVALID_ARGUMENT names `option` and the form or the limits. */
int cli_parse_size(const char *option, const char *text, const struct cli_size *size, uint64_t *ret,
                   struct abx_err *err);
/* Whole number within [min, max]; INVALID_ARGUMENT names `option` and the limits. */
int cli_parse_number(const char *option, const char *text, uint64_t min, uint64_t max,
                     uint64_t *ret, struct abx_err *err);
/* Duration like 90, 90s, 15m, 24h, 7d in seconds; INVALID_ARGUMENT names `option`. */
int cli_parse_duration(const char *option, const char *text, uint64_t *ret_s, struct abx_err *err);
