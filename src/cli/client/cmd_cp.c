/* cmd_cp.c - `abx sandbox cp` and `cat`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/client/commands.h"
#include "cli/client/copy.h"
#include "cli/client/output.h"
#include "cli/client/signals.h"

/* A word is a path in a sandbox when it has an id before its first colon. */
static const char *path_of(const char *word, size_t *ret_id_size)
{
    size_t n = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_");

    if (n == 0 || word[n] != ':')
        return NULL;
    *ret_id_size = n;
    return word[n + 1] ? word + n + 1 : "~";
}

static bool is_folder_here(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* One direction for all sources. */
static int check_words(const struct args *a, bool *ret_down)
{
    size_t n, last = a->count - 1;
    bool to_there = path_of(a->values[last], &n) != NULL;

    for (size_t i = 0; i < last; i++) {
        bool from_there = path_of(a->values[i], &n) != NULL;

        if (from_there && to_there)
            return args_usage(a, "both '%s' and '%s' are in a sandbox: copy to this machine first",
                              a->values[i], a->values[last]);
        if (!from_there && !to_there)
            return args_usage(a, "neither '%s' nor '%s' is in a sandbox: write ID:PATH",
                              a->values[i], a->values[last]);
    }
    *ret_down = !to_there;
    return 0;
}

/* The sandbox of a word; kept while the next word names the same. */
static int use_sandbox(struct copy *c, const char *word, size_t id_size, char **id)
{
    if (*id && strlen(*id) == id_size && strncmp(*id, word, id_size) == 0)
        return 0;
    abx_sandbox_unref(c->sb);
    c->sb = NULL;
    free(*id);
    *id = strndup(word, id_size);
    if (!*id)
        return session_set(c->s, ABX_RESOURCE_EXHAUSTED, "out of memory");
    return session_sandbox(c->s, *id, &c->sb);
}

static int copy_one(struct copy *c, const char *from, const char *to, bool is_down, bool is_folder,
                    char **id)
{
    const char *there = is_down ? from : to;
    size_t n = 0;
    const char *path = path_of(there, &n);
    int r = use_sandbox(c, there, n, id);

    if (r < 0)
        return r;
    return is_down ? copy_down(c, path, to, is_folder) : copy_up(c, from, path, is_folder);
}

static int report(struct copy *c)
{
    size_t left_out = json_array_size(c->left_out);

    if (session_is_json(c->s))
        (void)output_json(json_pack("{s:I,s:I,s:O}", "files", (json_int_t)c->files, "bytes",
                                    (json_int_t)c->bytes, "left_out", c->left_out));
    return left_out ? 1 : 0;
}

int cmd_sandbox_cp(struct session *s)
{
    const struct args *a = &s->args;
    const char *to = a->values[a->count - 1];
    struct copy c = { .s = s, .user = a->text[OPT_USER], .left_out = json_array() };
    char *id = NULL;
    bool is_down = false, is_folder;
    int status = check_words(a, &is_down);

    is_folder = a->count > 2 || (is_down && (is_folder_here(to) || to[strlen(to) - 1] == '/'));
    if (status == 0 && is_down && a->count > 2 && !is_folder_here(to) && strcmp(to, "-") != 0)
        status = args_usage(a, "'%s' is no folder, and there are several sources", to);
    if (status == 0 && is_down && strcmp(to, "-") == 0 && session_is_json(s))
        status = args_usage(a, "'-' and --json: both want standard output");
    if (status == 0 && signals_watch(s->client, &s->error) < 0)
        status = session_fail(s);
    c.shows_progress = isatty(STDERR_FILENO) && !a->number[OPT_NO_PROGRESS] && !session_is_json(s);
    for (size_t i = 0; status == 0 && i + 1 < a->count; i++) {
        int r = copy_one(&c, a->values[i], to, is_down, is_folder, &id);

        copy_hide(&c);
        if (r < 0 && s->error.sys == EPIPE)
            status = 128 + 13; /* SIGPIPE */
        else if (r < 0)
            status = session_fail_at(s, "copy %s", a->values[i]);
    }
    if (status == 0)
        status = report(&c);
    json_decref(c.left_out);
    abx_sandbox_unref(c.sb);
    free(id);
    return status;
}

int cmd_sandbox_cat(struct session *s)
{
    _cleanup_(abx_sandbox_unrefp) abx_sandbox *sb = NULL;
    struct copy c = { .s = s, .user = s->args.text[OPT_USER] };
    int status = 0;

    if (session_is_json(s))
        return args_usage(&s->args, "cat prints bytes as they are: there is no --json for it");
    if (session_sandbox(s, s->args.values[0], &sb) < 0)
        return session_fail(s);
    c.sb = sb;
    /* Each file is tried, as cat(1) does. */
    for (size_t i = 1; i < s->args.count; i++)
        if (copy_fetch(&c, s->args.values[i], STDOUT_FILENO) < 0) {
            int failed = session_fail_at(s, "%s", s->args.values[i]);

            status = status ? status : failed;
        }
    return status;
}
