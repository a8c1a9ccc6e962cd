/* quickstart.c - a sandbox from C: a command, a file, the end. Where and as whom: the environment (E2B_API_URL,
 * E2B_API_KEY, ABX_*), ~/.abx, or the service on this machine.
 *     cc quickstart.c $(pkg-config --cflags --libs libabx) -o quickstart && ./quickstart */
#include <abx/abx.h>
#include <stdio.h>

static struct abx_error error;

/* Waits until a call is done; false when it failed. */
static int done(abx_call *call)
{
    return call && abx_call_wait(call, -1, &error) == 0;
}

static int use(abx_client *client, abx_sandbox *sandbox)
{
    struct abx_write_item file = { "/tmp/data.txt", "content", 7, NULL, NULL, ABX_UNSET };
    struct abx_command_result result;
    abx_call *run = abx_command_run(client, sandbox, "echo hello", NULL);
    abx_call *write = NULL, *read = NULL;
    int ok = done(run);

    if (ok) {
        abx_call_command(run, &result);
        fwrite(result.out, 1, result.out_size, stdout);
        ok = done(write = abx_files_write(client, sandbox, &file, 1, NULL)) &&
             done(read = abx_files_read(client, sandbox, "/tmp/data.txt", NULL));
    }
    if (ok)
        puts(abx_call_bytes(read, NULL));
    abx_call_free(run);
    abx_call_free(write);
    abx_call_free(read);
    return ok;
}

int main(void)
{
    abx_client *client = NULL;
    abx_config *config = NULL;
    abx_call *create = NULL, *kill = NULL;
    int ok = abx_client_new(NULL, &client, &error) == 0 &&
             abx_config_load(NULL, &config, &error) == 0 &&
             done(create = abx_sandbox_create(client, config, NULL));
    abx_sandbox *sandbox = ok ? abx_call_take_sandbox(create) : NULL;

    if (sandbox) {
        ok = use(client, sandbox);
        ok = done(kill = abx_sandbox_kill(client, config, abx_sandbox_id(sandbox), -1)) && ok;
    }
    if (!ok)
        fprintf(stderr, "quickstart: %s: %s\n", abx_error_name(error.code), error.message);
    abx_call_free(create);
    abx_call_free(kill);
    abx_sandbox_unref(sandbox);
    abx_config_unref(config);
    abx_client_free(client);
    return ok ? 0 : 1;
}
