/* spec.c - the tables of spec.h. */
#include "cli/spec.h"

#include <string.h>

#include "base/macro.h"

const struct spec_option spec_options[OPT_COUNT] = {
    [OPT_TEMPLATE] = { "template", 't', SPEC_TEXT, "TEMPLATE",
                       "template to start from (default_template of the configuration, else "
                       "base)" },
    [OPT_TIMEOUT] = { "timeout", 0, SPEC_DURATION, "DURATION",
                      "how long the sandbox lives, like 90, 15m or 2h (5m)" },
    [OPT_COMMAND_TIMEOUT] = { "timeout", 0, SPEC_DURATION, "DURATION",
                              "kill the command after this time (no limit)" },
    [OPT_ENV] = { "env", 'e', SPEC_PAIR, "NAME=VALUE",
                  "environment variable; NAME alone takes the value of this process; repeatable" },
    [OPT_METADATA] = { "metadata", 'm', SPEC_PAIR, "KEY=VALUE",
                       "text kept with the sandbox; repeatable" },
    [OPT_CPU] = { "cpu", 0, SPEC_NUMBER, "N", "number of CPUs (the template's)", 1, 1024 },
    [OPT_MEMORY] = { "memory", 0, SPEC_SIZE, "SIZE",
                     "memory in MiB, or with K, M, G or T, like 2G (the template's)" },
    [OPT_DISK] = { "disk", 0, SPEC_SIZE, "SIZE",
                   "disk in MiB, or with K, M, G or T, like 10G (the template's)" },
    [OPT_NO_INTERNET] = { "no-internet", 0, SPEC_FLAG, NULL, "no way out into the internet" },
    [OPT_USER] = { "user", 'u', SPEC_TEXT, "USER",
                   "user in the sandbox (the template's default user)" },
    [OPT_CWD] = { "cwd", 'w', SPEC_TEXT, "DIR",
                  "folder in the sandbox where the command runs (the user's home)" },
    [OPT_TTY] = { "tty", 'T', SPEC_FLAG, NULL,
                  "run the command on a terminal of its own, as shell does" },
    [OPT_DETACH] = { "detach", 'd', SPEC_FLAG, NULL,
                     "leave the command running, print its process id" },
    [OPT_KEEP] = { "keep", 0, SPEC_FLAG, NULL, "do not kill the sandbox at the end" },
    [OPT_STATE] = { "state", 's', SPEC_TEXT, "STATE",
                    "only sandboxes in this state: running, paused, or both with a comma" },
    [OPT_OF_TEMPLATE] = { "template", 't', SPEC_TEXT, "TEMPLATE",
                          "only sandboxes of this template" },
    [OPT_WITH_METADATA] = { "metadata", 'm', SPEC_PAIR, "KEY=VALUE",
                            "only sandboxes with this metadata; repeatable" },
    [OPT_LIMIT] = { "limit", 'n', SPEC_NUMBER, "N", "print at most that many", 1, 1000000 },
    [OPT_QUIET] = { "quiet", 'q', SPEC_FLAG, NULL, "print ids only" },
    [OPT_PORT] = { "port", 'p', SPEC_NUMBER, "PORT", "print the host of this port of the sandbox",
                   1, 65535 },
    [OPT_ALL] = { "all", 'a', SPEC_FLAG, NULL, "every sandbox that list shows" },
    [OPT_YES] = { "yes", 'y', SPEC_FLAG, NULL, "do not ask" },
    [OPT_FOLLOW] = { "follow", 'f', SPEC_FLAG, NULL, "go on with what is logged from now on" },
    [OPT_LEVEL] = { "level", 0, SPEC_TEXT, "LEVEL", "least level: debug, info, warn or error" },
    [OPT_SEARCH] = { "search", 0, SPEC_TEXT, "TEXT", "only messages with this text" },
    [OPT_COUNT_COPIES] = { "count", 'c', SPEC_NUMBER, "N", "number of copies (1)", 1, 100 },
    [OPT_NAME] = { "name", 0, SPEC_TEXT, "NAME", "name of the snapshot (one is made)" },
    [OPT_LIST] = { "list", 'l', SPEC_FLAG, NULL, "print the snapshots, of all sandboxes or of ID" },
    [OPT_DELETE] = { "delete", 0, SPEC_FLAG, NULL, "delete snapshots" },
    [OPT_NO_MEMORY] = { "no-memory", 0, SPEC_FLAG, NULL,
                        "keep the file system only: commands end" },
    [OPT_STRICT] = { "strict", 0, SPEC_FLAG, NULL,
                     "only sandboxes whose daemon answers that it is well" },
    [OPT_NO_PROGRESS] = { "no-progress", 0, SPEC_FLAG, NULL, "no progress on the terminal" },
    [OPT_JSON] = { "json", 'j', SPEC_FLAG, NULL, "print one JSON document", .is_connection = true },
    [OPT_PROFILE] = { "profile", 'P', SPEC_TEXT, "NAME",
                      "profile of ~/.abx/config.toml (ABX_PROFILE)", .is_connection = true },
    [OPT_API_URL] = { "api-url", 0, SPEC_TEXT, "URL", "base URL of the service",
                      .is_connection = true },
    [OPT_DOMAIN] = { "domain", 0, SPEC_TEXT, "NAME",
                     "domain of the service: api.NAME, PORT-ID.NAME", .is_connection = true },
    [OPT_SANDBOX_URL] = { "sandbox-url", 0, SPEC_TEXT, "URL",
                          "one base URL for all sandboxes, told apart by headers",
                          .is_connection = true },
    [OPT_API_KEY_FILE] = { "api-key-file", 0, SPEC_FILE, "FILE",
                           "file with the API key on its first line, - for standard input",
                           .is_connection = true },
    [OPT_API_KEY] = { "api-key", 0, SPEC_TEXT, "KEY",
                      "the API key itself, which other users of this machine can see",
                      .is_connection = true },
    [OPT_CA_FILE] = { "ca-file", 0, SPEC_FILE, "FILE",
                      "certificates to trust, PEM (SSL_CERT_FILE, else the system's)",
                      .is_connection = true },
    [OPT_REQUEST_TIMEOUT] = { "request-timeout", 0, SPEC_DURATION, "DURATION",
                              "longest time for one answer of the service (60)",
                              .is_connection = true },
    [OPT_HELP] = { "help", 'h', SPEC_FLAG, NULL, "describe the command", .is_connection = true },
};

#define IN_SANDBOX (SPEC_BIT(OPT_USER))
#define COMMAND                                                                                    \
    (SPEC_BIT(OPT_ENV) | SPEC_BIT(OPT_USER) | SPEC_BIT(OPT_CWD) | SPEC_BIT(OPT_COMMAND_TIMEOUT))
#define NEW_SANDBOX                                                                                \
    (SPEC_BIT(OPT_TEMPLATE) | SPEC_BIT(OPT_TIMEOUT) | SPEC_BIT(OPT_ENV) | SPEC_BIT(OPT_METADATA) | \
     SPEC_BIT(OPT_CPU) | SPEC_BIT(OPT_MEMORY) | SPEC_BIT(OPT_DISK) | SPEC_BIT(OPT_NO_INTERNET))

static const struct spec_command commands[] = {
    {
        .name = "run",
        .arguments = "[COMMAND [ARG...]]",
        .max_args = SPEC_ARGS_MANY,
        .has_command = true,
        .summary = "run a command in a new sandbox, then kill the sandbox",
        .text = "Makes a sandbox, runs the command in it as 'sandbox exec' does, and kills the "
                "sandbox whatever happens: when the command ends, fails or is interrupted. "
                "Without a command it runs a shell.\n\n"
                "The sandbox lives as long as the command: its time is renewed meanwhile, so that "
                "it ends soon even when this process is killed without a chance. With --timeout "
                "it is not renewed.",
        .options = NEW_SANDBOX | SPEC_BIT(OPT_USER) | SPEC_BIT(OPT_CWD) | SPEC_BIT(OPT_TTY) |
                   SPEC_BIT(OPT_KEEP),
    },
    {
        .name = "sandbox create",
        .alias = { "create" },
        .arguments = "",
        .summary = "start a sandbox, print its id",
        .text = "An interrupt while the service works on it does not leave a sandbox behind: the "
                "answer is waited for, and the sandbox killed.",
        .options = NEW_SANDBOX,
    },
    {
        .name = "sandbox list",
        .alias = { "ls", "list" },
        .arguments = "",
        .summary = "list sandboxes",
        .text =
            "All pages of the service's list, in its order. On a terminal the last column is cut "
            "to fit.",
        .options = SPEC_BIT(OPT_STATE) | SPEC_BIT(OPT_OF_TEMPLATE) | SPEC_BIT(OPT_WITH_METADATA) |
                   SPEC_BIT(OPT_LIMIT) | SPEC_BIT(OPT_QUIET),
    },
    {
        .name = "sandbox info",
        .alias = { "info" },
        .arguments = "ID",
        .min_args = 1,
        .max_args = 1,
        .summary = "print what is known of a sandbox",
        .options = 0,
    },
    {
        .name = "sandbox exec",
        .alias = { "exec" },
        .arguments = "ID COMMAND [ARG...]",
        .min_args = 2,
        .max_args = SPEC_ARGS_MANY,
        .command_at = 1,
        .has_command = true,
        .summary = "run a command in a sandbox",
        .text =
            "A single COMMAND is a line for the shell (/bin/bash -l -c COMMAND); with "
            "arguments it is a program, and they reach it as they are. Options of abx stand "
            "before the command.\n\n"
            "Standard input, output and error are passed through byte for byte. The exit status "
            "is the command's; 128 + N when signal N ended it, 127 when there is no such command "
            "and 126 when it cannot be executed. "
            "What it leaves in the background with its output open ('sleep 100 &') is waited "
            "for: redirect that output, or use --detach.\n\n"
            "An interrupt (Ctrl-C), SIGTERM or SIGHUP ends the command: SIGTERM, and after two "
            "seconds SIGKILL. A second one gives up waiting. When nobody reads the output any "
            "more, the command is ended too.",
        .options = COMMAND | SPEC_BIT(OPT_TTY) | SPEC_BIT(OPT_DETACH),
    },
    {
        .name = "sandbox shell",
        .alias = { "sh", "shell" },
        .arguments = "ID [COMMAND [ARG...]]",
        .min_args = 1,
        .max_args = SPEC_ARGS_MANY,
        .command_at = 1,
        .has_command = true,
        .summary = "open a login shell on a terminal in a sandbox",
        .text = "The terminal's size is passed on, also when it changes; the exit status is the "
                "shell's. At the beginning of a line, ~. closes the connection (and the shell), "
                "~~ sends a ~.\n\n"
                "When standard input is no terminal, the shell gets none either and reads its "
                "commands from standard input.",
        .options = COMMAND,
    },
    {
        .name = "sandbox cp",
        .alias = { "cp" },
        .arguments = "SOURCE... TARGET",
        .min_args = 2,
        .max_args = SPEC_ARGS_MANY,
        .summary = "copy files and trees into or out of a sandbox",
        .text = "ID:PATH is a path in a sandbox (relative ones begin in the user's home), "
                "everything else one of this machine; write ./a:b for a file whose name has a "
                "colon. Either all sources or the target are in a sandbox. - is standard input or "
                "output. Into a folder that exists a source is copied under its own name; DIR/. "
                "stands for what is in DIR.\n\n"
                "Permission bits are kept, setuid and setgid are not. A file has its final name "
                "only when it is complete. Symbolic links in a tree stay links; out of a sandbox "
                "only those that point to something within the tree are made, the others are "
                "named and left out. No name or link that a sandbox made up leads out of the "
                "target. Exit status 1 when anything was left out.",
        .options = SPEC_BIT(OPT_USER) | SPEC_BIT(OPT_NO_PROGRESS),
    },
    {
        .name = "sandbox cat",
        .alias = { "cat" },
        .arguments = "ID PATH...",
        .min_args = 2,
        .max_args = SPEC_ARGS_MANY,
        .summary = "print files of a sandbox",
        .options = SPEC_BIT(OPT_USER),
    },
    {
        .name = "sandbox logs",
        .alias = { "logs" },
        .arguments = "ID",
        .min_args = 1,
        .max_args = 1,
        .summary = "print the logs of a sandbox",
        .options =
            SPEC_BIT(OPT_FOLLOW) | SPEC_BIT(OPT_LEVEL) | SPEC_BIT(OPT_SEARCH) | SPEC_BIT(OPT_LIMIT),
        .text =
            "Lines are about the sandbox's life and what its network rules refused. With --follow "
            "and --json, one JSON object a line; following ends with the sandbox.",
    },
    {
        .name = "sandbox metrics",
        .arguments = "ID",
        .min_args = 1,
        .max_args = 1,
        .summary = "print CPU, memory and disk use over time",
        .options = SPEC_BIT(OPT_LIMIT),
    },
    {
        .name = "sandbox connect",
        .arguments = "ID",
        .min_args = 1,
        .max_args = 1,
        .summary = "resume a sandbox that is paused, or let it live longer; print its id",
        .text = "Opens no terminal, other than the command of that name of E2B's CLI: 'abx sandbox "
                "shell ID' does.\n\n"
                "Resumes a paused sandbox. The time of a running one becomes at least --timeout "
                "from now, never less than it was. For scripts that are about to use a sandbox: "
                "with --port it prints the host at which one of its ports is reached, with --json "
                "its domain and the URL of its daemon too.",
        .options = SPEC_BIT(OPT_TIMEOUT) | SPEC_BIT(OPT_PORT),
    },
    {
        .name = "sandbox timeout",
        .arguments = "ID DURATION",
        .min_args = 2,
        .max_args = 2,
        .summary = "let a sandbox live for DURATION from now",
        .options = 0,
    },
    {
        .name = "sandbox pause",
        .arguments = "ID...",
        .min_args = 1,
        .max_args = SPEC_ARGS_MANY,
        .summary = "pause sandboxes",
        .options = SPEC_BIT(OPT_NO_MEMORY) | SPEC_BIT(OPT_STRICT),
    },
    {
        .name = "sandbox resume",
        .arguments = "ID...",
        .min_args = 1,
        .max_args = SPEC_ARGS_MANY,
        .summary = "resume paused sandboxes",
        .options = SPEC_BIT(OPT_TIMEOUT),
    },
    {
        .name = "sandbox fork",
        .arguments = "ID",
        .min_args = 1,
        .max_args = 1,
        .summary = "make copies of a running sandbox, print their ids",
        .options = SPEC_BIT(OPT_COUNT_COPIES) | SPEC_BIT(OPT_TIMEOUT),
    },
    {
        .name = "sandbox snapshot",
        .arguments = "[ID|SNAPSHOT...]",
        .max_args = SPEC_ARGS_MANY,
        .summary = "keep the state of a sandbox as a template, print its id",
        .text = "With --list prints those that there are, with --delete deletes the given ones: "
                "sandboxes made of them go on. Every one is tried; the exit status is that of the "
                "first that failed.",
        .options = SPEC_BIT(OPT_NAME) | SPEC_BIT(OPT_LIST) | SPEC_BIT(OPT_DELETE),
    },
    {
        .name = "sandbox rollback",
        .arguments = "ID SNAPSHOT",
        .min_args = 2,
        .max_args = 2,
        .summary = "give a sandbox the files of a snapshot, in place",
        .text =
            "SNAPSHOT is the id or the name of one, of this sandbox or of another of the same "
            "template. "
            "The sandbox keeps its id, tokens, time and network; its processes end and it starts "
            "anew. One that is paused stays paused. When it fails, the sandbox goes on as it was.",
    },
    {
        .name = "sandbox kill",
        .alias = { "kill" },
        .arguments = "[ID...]",
        .max_args = SPEC_ARGS_MANY,
        .summary = "kill sandboxes",
        .text = "--all asks on a terminal and needs --yes elsewhere. Every id is tried; the exit "
                "status is that of the first that failed. One that does not exist is a failure "
                "(4).",
        .options = SPEC_BIT(OPT_ALL) | SPEC_BIT(OPT_YES) | SPEC_BIT(OPT_WITH_METADATA),
    },
    {
        .name = "whoami",
        .arguments = "",
        .summary = "print which service commands talk to and as whom, and try it",
        .text = "Each value comes with where it was found. The key is shown by its last four "
                "characters.",
        .options = 0,
    },
};

const struct spec_command *spec_at(size_t i)
{
    return i < ARRAY_SIZE(commands) ? &commands[i] : NULL;
}

/* The words of a name that `argv` begins with; 0 = other words. */
static int words_matching(const char *name, int argc, char *const *argv)
{
    int n = 0;

    while (*name) {
        size_t k = strcspn(name, " ");

        if (n == argc || strlen(argv[n]) != k || strncmp(argv[n], name, k) != 0)
            return 0;
        n++;
        name += k + (name[k] == ' ');
    }
    return n;
}

static const struct spec_command *find(int argc, char *const *argv, int *ret_words)
{
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        const struct spec_command *c = &commands[i];
        int n = words_matching(c->name, argc, argv);

        for (size_t k = 0; n == 0 && k < ARRAY_SIZE(c->alias) && c->alias[k]; k++)
            n = words_matching(c->alias[k], argc, argv);
        if (n > 0) {
            *ret_words = n;
            return c;
        }
    }
    return NULL;
}

const struct spec_command *spec_find(int argc, char *const *argv, int *ret_words)
{
    const struct spec_command *c = find(argc, argv, ret_words);

    if (c || argc < 2 || strcmp(argv[0], "sandbox") != 0 || strcmp(argv[1], "sandbox") == 0)
        return c;
    c = find(argc - 1, argv + 1, ret_words); /* `sandbox ls`, `sandbox run` */
    if (c)
        (*ret_words)++;
    return c;
}

bool spec_has_word(const char *word)
{
    char *one = (char *)(uintptr_t)word;
    int n;

    return strcmp(word, "sandbox") == 0 || spec_find(1, &one, &n) != NULL;
}

uint64_t spec_options_of(const struct spec_command *command)
{
    uint64_t set = command->options;

    for (size_t i = 0; i < OPT_COUNT; i++)
        if (spec_options[i].is_connection)
            set |= SPEC_BIT(i);
    return set;
}

void spec_print_commands(FILE *to)
{
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        const struct spec_command *c = &commands[i];

        (void)fprintf(to, "  %-18s %s", c->name, c->summary);
        for (size_t k = 0; k < ARRAY_SIZE(c->alias) && c->alias[k]; k++)
            (void)fprintf(to, "%s%s", k == 0 ? " (short: " : ", ", c->alias[k]);
        (void)fputs(c->alias[0] ? ")\n" : "\n", to);
    }
}
