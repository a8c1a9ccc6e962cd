/* cmd_doctor.c - `abx doctor`: what this machine can do, and what a service left behind.
 *
 * The checks are the engine's (`abx-engine --probe`), tried there by real calls; this command only
 * shows them. Statuses: ok, degraded (works with less), missing (sandboxes cannot run), info.
 */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/admin.h"
#include "cli/cli.h"
#include "cli/json_out.h"

#define PROBE_TIMEOUT_S 60
#define PROBE_MAX (1u << 20)

static const char help[] =
    "usage: abx doctor [--audit [--repair]] [OPTION...]\n"
    "\n"
    "Tries every kernel feature, tool and limit that sandboxes need and says what is missing,\n"
    "what that means and how to get it. Run it as root, which alone can try most of them.\n"
    "Exit status 1 when sandboxes cannot run, or when this was not tried.\n"
    "\n"
    "  --audit          ask the running service for what no one owns: processes, cgroups, files,\n"
    "                   uid ranges, network namespaces; exit status 1 when there is something\n"
    "  --repair         with --audit: remove it; a process of the service that keeps a network\n"
    "                   namespace alive is started again, and connections through it break\n"
    "  --data-dir DIR   of the service (/var/lib/abx)\n"
    "  --json           print JSON\n"
    "  -h, --help       print this\n";

const struct option doctor_options[] = {
    { "audit", no_argument, NULL, 'a' },          { "repair", no_argument, NULL, 'r' },
    { "data-dir", required_argument, NULL, 'd' }, { "json", no_argument, NULL, 'j' },
    { "help", no_argument, NULL, 'h' },           { 0 },
};

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

static int print_json(const json_t *j, int status)
{
    int r = json_put(j, stdout, JSON_INDENT(2));

    (void)putchar('\n');
    return cli_end(r < 0 ? 1 : status);
}

static void print_checks(const json_t *probe)
{
    const json_t *check;
    size_t i;

    json_array_foreach(json_object_get(probe, "checks"), i, check)
    {
        const char *status = text_of(check, "status");

        (void)printf("%-9s %-22s %s\n", status, text_of(check, "name"), text_of(check, "value"));
        if (strcmp(status, "ok") == 0 || strcmp(status, "info") == 0)
            continue;
        if (*text_of(check, "meaning"))
            (void)printf("%-9s %-22s   %s\n", "", "", text_of(check, "meaning"));
        if (*text_of(check, "fix"))
            (void)printf("%-9s %-22s   to get it: %s\n", "", "", text_of(check, "fix"));
    }
}

static int probe_machine(const char *data_dir, bool is_json)
{
    _cleanup_(buf_done) struct buf out = BUF_INIT(PROBE_MAX);
    _cleanup_(json_decrefp) json_t *probe = NULL;
    struct abx_err err = { 0 };
    char dir[PATH_MAX];
    char *argv[] = { (char[]){ "abx-engine" }, (char[]){ "--probe" }, (char[]){ "--data-dir" }, dir,
                     NULL };
    int status = 0;
    bool can_run;

    (void)snprintf(dir, sizeof dir, "%s", data_dir);
    if (admin_run("abx-engine", argv, slice_str(""), PROBE_TIMEOUT_S, &out, &status, &err) < 0)
        return cli_fail(&err);
    probe = json_loadb((const char *)buf_data(&out), out.len, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(probe)) {
        (void)err_set(&err, ABX_INTERNAL, "abx-engine --probe gave no result (status 0x%x)",
                      (unsigned)status);
        return cli_fail(&err);
    }
    can_run = json_is_true(json_object_get(probe, "can_run"));
    if (is_json)
        return print_json(probe, can_run ? 0 : 1);
    print_checks(probe);
    if (can_run)
        (void)puts("\nSandboxes can run on this machine.");
    else if (geteuid() == 0)
        (void)puts("\nSandboxes cannot run on this machine: see `missing` above.");
    else
        (void)puts("\nOnly root can try the rest: `sudo abx doctor` says whether sandboxes can run "
                   "here.");
    return can_run ? 0 : 1;
}

static int audit(const char *data_dir, bool is_repair, bool is_json)
{
    _cleanup_(json_decrefp) json_t *reply = NULL;
    struct abx_err err = { 0 };
    const json_t *findings, *f;
    size_t i, n;
    int left;

    if (admin_op_running(data_dir,
                         json_pack("{s:s,s:b}", "op", "audit", "repair", is_repair ? 1 : 0), &reply,
                         &err) < 0)
        return cli_fail(&err);
    findings = json_object_get(reply, "findings");
    n = json_array_size(findings);
    left = n > 0 && !is_repair;
    if (is_json)
        return print_json(reply, left);
    json_array_foreach(findings, i, f)
    {
        const char *text = json_string_value(f);

        (void)printf("%s\n", text ? text : "?");
    }
    if (n == 0)
        (void)printf("nothing found that no one owns\n");
    else if (is_repair)
        (void)printf("removed %lld of %zu\n",
                     (long long)json_integer_value(json_object_get(reply, "repaired")), n);
    else
        (void)printf("%zu found; `abx doctor --audit --repair` removes them\n", n);
    return left;
}

int cmd_doctor(int argc, char **argv)
{
    static char data_dir[PATH_MAX] = CLI_DATA_DIR;
    bool is_audit = false, is_repair = false, is_json = false;
    struct abx_err err = { 0 };
    int c;

    argv[0] = (char[]){ "abx doctor" }; /* what getopt calls it */
    while ((c = getopt_long(argc, argv, "h", doctor_options, NULL)) != -1) {
        switch (c) {
        case 'a':
            is_audit = true;
            break;
        case 'r':
            is_repair = true;
            break;
        case 'j':
            is_json = true;
            break;
        case 'd':
            if (cli_absolute("--data-dir", optarg, data_dir, sizeof data_dir, &err) < 0)
                return cli_usage("doctor", "%s", err.msg);
            break;
        case 'h':
            return fputs(help, stdout) < 0;
        default:
            return cli_bad_option("doctor");
        }
    }
    if (optind < argc)
        return cli_usage("doctor", "unexpected argument '%s'", argv[optind]);
    if (is_repair && !is_audit)
        return cli_usage("doctor", "--repair goes with --audit");
    return is_audit ? audit(data_dir, is_repair, is_json) : probe_machine(data_dir, is_json);
}
