/* cmd_key_local.c - `abx key local --user NAME`: lets one more user of this machine find its service. */
#include <stdio.h>
#include <string.h>

#include "cli/admin.h"
#include "cli/cli.h"
#include "cli/cmd_key_local.h"
#include "cli/datadir.h"
#include "cli/json_out.h"
#include "cli/local_key.h"

/* The service that users find may be another than the one asked for. */
static int check_service(const char *data_dir, const struct local_service_info *info,
                         struct abx_err *err)
{
    char instance[DATADIR_INSTANCE_SIZE];
    int r = data_dir ? datadir_instance(data_dir, instance, err) : 0;

    if (r < 0 || !data_dir || strcmp(instance, info->instance) == 0)
        return r;
    return err_set(err, ABX_FAILED_PRECONDITION,
                   "users of this machine find the service of '%s', not that of '%s'",
                   info->data_dir, data_dir);
}

static int give_key(const struct local_dir *d, const struct local_service_info *info,
                    const struct local_user *user, struct abx_err *err)
{
    char socket_path[128], key[LOCAL_KEY_SIZE];
    int r;

    (void)snprintf(socket_path, sizeof socket_path, "%s/%s/admin.sock", CLI_RUN_DIR,
                   info->instance);
    r = local_key_ensure(socket_path, info->data_dir, user, key, err);
    if (r == 0)
        r = local_dir_write(d, info, user->uid, key, err);
    explicit_bzero(key, sizeof key);
    if (r == 0 && !local_dir_is_live(d)) { /* it stopped meanwhile: nobody else would remove it */
        local_dir_remove(d, user->uid);
        r = err_set(err, ABX_UNAVAILABLE,
                    "the service has stopped; the key is given when it starts");
    }
    return r;
}

int key_local(const char *data_dir, const char *user_text, bool is_json, struct abx_err *err)
{
    struct local_service_info info = { 0 };
    struct local_dir d = LOCAL_DIR_INIT;
    struct local_user user;
    int r = local_user_find("--user", user_text, &user, err);

    if (r == 0)
        r = local_dir_open(&d, &info, err);
    if (r == 0)
        r = check_service(data_dir, &info, err);
    if (r == 0)
        r = give_key(&d, &info, &user, err);
    local_dir_close(&d);
    if (r < 0)
        return r;
    if (is_json) {
        _cleanup_(json_decrefp) json_t *j =
            json_pack("{s:s,s:I,s:s,s:s}", "user", user.name, "uid", (json_int_t)user.uid,
                      "base_url", info.base_url, "data_dir", info.data_dir);

        if (!j || (json_put(j, stdout, JSON_INDENT(2)) < 0 && !ferror(stdout)))
            return err_set(err, ABX_INTERNAL, "the answer is no JSON");
        (void)putchar('\n');
    } else {
        (void)printf("clients of user %s find %s by themselves\n", user.name, info.base_url);
    }
    return 0;
}
