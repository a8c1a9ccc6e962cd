/* loop.c - libabx in a program that has an event loop of its own, here poll(2): three commands at once, their output as it
 * comes, and standard input of the program as one more source of events. Ctrl-D or the last command ends it.
 *     cc loop.c $(pkg-config --cflags --libs libabx) -o loop && ./loop SANDBOX_ID */
#include <abx/abx.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#define COMMANDS 3

static int left = COMMANDS;

/* Events wait: take them. What is not taken makes the sender wait. */
static void on_event(void *user, abx_call *call)
{
    const char *name = user;
    struct abx_event event;

    while (abx_call_next(call, &event)) {
        switch (event.kind) {
        case ABX_EVENT_START:
            printf("%s: process %u\n", name, (unsigned)event.pid);
            break;
        case ABX_EVENT_OUTPUT:
            printf("%s: %.*s", name, (int)event.size, (const char *)event.data);
            break;
        case ABX_EVENT_END:
            printf("%s: ended with %d\n", name, event.exit_code);
            break;
        case ABX_EVENT_FILE:
        case ABX_EVENT_DATA:
            break; /* not of commands */
        }
    }
}

/* Once, also when it failed; the call may be freed here. */
static void on_done(void *user, abx_call *call)
{
    const struct abx_error *error = abx_call_error(call);

    if (error->code != ABX_OK)
        fprintf(stderr, "%s: %s\n", (const char *)user, error->message);
    abx_call_free(call);
    left--;
}

/* One turn of the program's loop. Returns 0 when standard input is at its end. */
static int turn(abx_client *client)
{
    struct pollfd fds[2] = { { 0, POLLIN, 0 }, { 0, POLLIN, 0 } };
    char line[256];

    fds[0].fd = abx_client_fd(client); /* timers and deadlines make it readable too */
    fds[1].fd = STDIN_FILENO;
    if (poll(fds, 2, -1) < 0)
        return 1;
    if (fds[0].revents)
        abx_client_process(client);
    return !fds[1].revents || read(STDIN_FILENO, line, sizeof line) > 0;
}

int main(int argc, char **argv)
{
    static char names[COMMANDS][8] = { "first", "second", "third" };
    struct abx_error error = { 0 };
    abx_client *client = NULL;
    abx_config *config = NULL;
    abx_call *connect = NULL;
    abx_sandbox *sandbox;
    int i;

    if (argc != 2 || abx_client_new(NULL, &client, &error) < 0 ||
        abx_config_load(NULL, &config, &error) < 0 ||
        !(connect = abx_sandbox_connect(client, config, argv[1], 0, ABX_UNSET)) ||
        abx_call_wait(connect, -1, &error) < 0) {
        fprintf(stderr, "loop: %s\n", argc != 2 ? "usage: loop SANDBOX_ID" : error.message);
        return 1;
    }
    sandbox = abx_call_take_sandbox(connect);
    for (i = 0; i < COMMANDS; i++) {
        abx_call *call = abx_command_start(client, sandbox, "sleep 0.1; echo done", NULL);

        if (!call)
            return 1;
        abx_call_on_event(call, on_event, names[i]);
        abx_call_on_done(call, on_done, names[i]);
    }
    while (left > 0 && turn(client))
        ;
    abx_call_free(connect);
    abx_sandbox_unref(sandbox);
    abx_config_unref(config);
    abx_client_free(client); /* what still runs completes as CANCELED: on_done frees it */
    return left > 0;
}
