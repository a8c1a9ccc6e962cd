/* git.c - see abx/git.h: words for the shell, credentials in URLs, what `git status` prints.
 *
 * git itself runs in the sandbox through abx_command_run (client.md 1.6).
 */
#include "abx/git.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "transport/call.h"

#define GIT_COMMAND_MAX (1u << 20)
#define GIT_STATUS_MAX (64u << 20)

static int git_fail(struct abx_error *to, int code, const char *message)
{
    struct abx_err err;

    (void)err_set(&err, code, "%s", message);
    if (to)
        error_export(&err, 0, to);
    return code;
}

static int git_full(struct abx_error *to, const char *what)
{
    struct abx_err err;
    int code = err_reason(&err, ABX_REASON_TOO_LARGE, "%s: over 1 MiB, or out of memory", what);

    if (to)
        error_export(&err, 0, to);
    return code;
}

/* One word in single quotes; a quote inside becomes '\''. */
static enum buf_status word_put(struct buf *b, const char *word)
{
    enum buf_status s = buf_append_str(b, b->len > 0 ? " '" : "'");

    for (const char *p = word; s == BUF_OK && *p;) {
        size_t n = strcspn(p, "'");

        s = buf_append(b, p, n);
        p += n;
        if (s == BUF_OK && *p == '\'') {
            s = buf_append_str(b, "'\\''");
            p++;
        }
    }
    return s == BUF_OK ? buf_append_byte(b, '\'') : s;
}

static int buf_give(struct buf *b, char **ret, const char *what, struct abx_error *err)
{
    const char *text = buf_cstr(b);
    char *copy = text ? strdup(text) : NULL;

    if (!copy)
        return git_full(err, what);
    *ret = copy;
    return 0;
}

int abx_git_command(const char *repo, const char *const *args, size_t arg_count, char **ret,
                    struct abx_error *err)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(GIT_COMMAND_MAX);
    enum buf_status s = word_put(&b, "git");

    if (repo) {
        s = s == BUF_OK ? word_put(&b, "-C") : s;
        s = s == BUF_OK ? word_put(&b, repo) : s;
    }
    for (size_t i = 0; s == BUF_OK && i < arg_count; i++) {
        if (!args || !args[i])
            return git_fail(err, ABX_INVALID_ARGUMENT, "args: one is missing (NULL)");
        s = word_put(&b, args[i]);
    }
    if (s != BUF_OK)
        return git_full(err, "git command");
    return buf_give(&b, ret, "git command", err);
}

int abx_git_url(const char *url, const char *username, const char *password, char **ret,
                struct abx_error *err)
{
    _cleanup_(buf_done) struct buf b = BUF_INIT(GIT_COMMAND_MAX);
    const char *rest = NULL, *end, *at;
    enum buf_status s;

    if (!url)
        return git_fail(err, ABX_INVALID_ARGUMENT, "url: is missing (NULL)");
    if (strncasecmp(url, "https://", 8) == 0)
        rest = url + 8;
    else if (strncasecmp(url, "http://", 7) == 0)
        rest = url + 7;
    if (!rest && username)
        return git_fail(err, ABX_INVALID_ARGUMENT,
                        "url: only http and https URLs can carry a username and a password");
    if (!rest) { /* ssh and files have nothing to take away */
        s = buf_append_str(&b, url);
        return s == BUF_OK ? buf_give(&b, ret, "url", err) : git_full(err, "url");
    }
    end = rest + strcspn(rest, "/?#");
    at = memrchr(rest, '@', (size_t)(end - rest));
    s = buf_append(&b, url, (size_t)(rest - url));
    if (s == BUF_OK && username) {
        s = percent_encode(&b, slice_str(username));
        if (s == BUF_OK && password) {
            s = buf_append_byte(&b, ':');
            s = s == BUF_OK ? percent_encode(&b, slice_str(password)) : s;
        }
        s = s == BUF_OK ? buf_append_byte(&b, '@') : s;
    }
    s = s == BUF_OK ? buf_append_str(&b, at ? at + 1 : rest) : s;
    return s == BUF_OK ? buf_give(&b, ret, "url", err) : git_full(err, "url");
}

/* ---- git status --porcelain=1 -b ---- */

struct status_build {
    struct abx_git_status status; /* first */
    struct abx_git_file *files;
    size_t count, capacity;
    char *mem; /* copy of the text: the strings of the result are cut out of it */
};

void abx_git_status_free(struct abx_git_status *status)
{
    struct status_build *b = (struct status_build *)(void *)status;

    if (!b)
        return;
    free(b->files);
    free(b->mem);
    free(b);
}

static void status_build_freep(struct status_build **b)
{
    if (*b)
        abx_git_status_free(&(*b)->status);
}

/* Digit run behind `word` in the text between the brackets, 0 = not there. */
static int64_t count_after(const char *text, const char *word)
{
    const char *at = strstr(text, word);
    size_t n = at ? strspn(at + strlen(word), "0123456789") : 0;
    int64_t value = 0;

    if (n > 0)
        (void)str_parse_i64(slice_of(at + strlen(word), n), 0, INT64_MAX, &value);
    return value;
}

/* "## main...origin/main [ahead 1, behind 2]", cut in place. */
static void branch_parse(char *line, struct abx_git_status *to)
{
    static const char *const unborn[] = { "No commits yet on ", "Initial commit on " };
    char *text = line + 3, *track, *dots;

    if (strncmp(text, "HEAD (no branch)", 16) == 0) {
        to->detached = 1;
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(unborn); i++)
        if (strncmp(text, unborn[i], strlen(unborn[i])) == 0)
            text += strlen(unborn[i]);
    track = strstr(text, " [");
    if (track) {
        *track = '\0';
        to->ahead = count_after(track + 1, "ahead ");
        to->behind = count_after(track + 1, "behind ");
    }
    dots = strstr(text, "..."); /* no branch name has two dots in a row */
    if (dots) {
        *dots = '\0';
        to->upstream = dots + 3;
    }
    to->branch = text;
}

/* Undoes git's C quoting in place; returns what follows the closing quote, NULL when it is broken. */
static char *unquote(char *text)
{
    static const char letters[] = "abtnvfr\"\\", values[] = "\a\b\t\n\v\f\r\"\\";
    char *to = text, *p = text + 1;

    while (*p && *p != '"') {
        const char *letter;

        if (*p != '\\') {
            *to++ = *p++;
            continue;
        }
        p++;
        letter = *p ? strchr(letters, *p) : NULL;
        if (letter) {
            *to++ = values[letter - letters];
            p++;
        } else if (strspn(p, "01234567") >= 3) {
            *to++ = (char)((p[0] - '0') << 6 | (p[1] - '0') << 3 | (p[2] - '0'));
            p += 3;
        } else {
            return NULL;
        }
    }
    if (*p != '"')
        return NULL;
    *to = '\0';
    return p + 1;
}

/* One path at *text, quoted or up to `stop` (NULL = up to the end); moves *text behind it. */
static char *path_take(char **text, const char *stop)
{
    char *path = *text, *end;

    if (*path == '"') {
        *text = unquote(path);
        return *text ? path : NULL;
    }
    end = stop ? strstr(path, stop) : NULL;
    *text = end ? end : path + strlen(path);
    return path;
}

/* "XY path" or "XY old -> new". */
static bool file_parse(char *line, struct abx_git_file *to)
{
    char *text = line + 3, *first;
    bool two = strchr("RC", line[0]) || strchr("RC", line[1]);

    if (strlen(line) < 4 || line[2] != ' ')
        return false;
    *to = (struct abx_git_file){ .index = line[0], .worktree = line[1] };
    first = path_take(&text, two ? " -> " : NULL);
    if (!first)
        return false;
    if (two && strncmp(text, " -> ", 4) == 0) {
        char *next = text + 4;

        *text = '\0';
        to->renamed_from = first;
        to->path = path_take(&next, NULL);
        return to->path && *next == '\0';
    }
    to->path = first;
    return *text == '\0';
}

static int file_add(struct status_build *b, char *line, struct abx_error *err)
{
    if (b->count == b->capacity) {
        size_t capacity = b->capacity ? b->capacity * 2 : 16;
        struct abx_git_file *files = reallocarray(b->files, capacity, sizeof *files);

        if (!files)
            return git_fail(err, ABX_RESOURCE_EXHAUSTED, "out of memory");
        b->files = files;
        b->capacity = capacity;
    }
    if (!file_parse(line, &b->files[b->count]))
        return git_fail(err, ABX_INVALID_ARGUMENT, "git status: a line is not understood");
    b->count++;
    return 0;
}

int abx_git_status_parse(const char *text, struct abx_git_status **ret, struct abx_error *err)
{
    _cleanup_(status_build_freep) struct status_build *b = NULL;
    struct status_build *done;
    char *next;

    if (!text)
        return git_fail(err, ABX_INVALID_ARGUMENT, "git status: is missing (NULL)");
    if (strnlen(text, GIT_STATUS_MAX + 1) > GIT_STATUS_MAX)
        return git_fail(err, ABX_INVALID_ARGUMENT, "git status: over 64 MiB");
    b = calloc(1, sizeof *b);
    if (b)
        b->mem = strdup(text);
    if (!b || !b->mem)
        return git_fail(err, ABX_RESOURCE_EXHAUSTED, "out of memory");
    next = b->mem;
    while (*next) {
        char *line = next;
        size_t n = strcspn(line, "\n");
        int r = 0;

        next = line[n] ? line + n + 1 : line + n;
        line[n] = '\0';
        if (n > 0 && line[n - 1] == '\r')
            line[n - 1] = '\0';
        if (strncmp(line, "## ", 3) == 0)
            branch_parse(line, &b->status);
        else if (*line)
            r = file_add(b, line, err);
        if (r < 0)
            return r;
    }
    b->status.files = b->files;
    b->status.file_count = b->count;
    done = TAKE_PTR(b);
    *ret = &done->status;
    return 0;
}

/* ---- why it failed ---- */

static bool has_any(const char *text, const char *const *parts, size_t n)
{
    for (size_t i = 0; text && i < n; i++)
        if (strcasestr(text, parts[i]))
            return true;
    return false;
}

int abx_git_failure(const char *out, const char *err_text)
{
    static const char *const credentials[] = {
        "authentication failed",
        "terminal prompts disabled",
        "could not read username",
        "could not read password",
        "invalid username or password",
        "permission denied (publickey",
        "the requested url returned error: 401",
        "the requested url returned error: 403",
    };
    static const char *const upstream[] = {
        "has no upstream branch",         "no tracking information",    "no upstream configured",
        "no configured push destination", "set the remote as upstream",
    };

    if (has_any(err_text, credentials, ARRAY_SIZE(credentials)) ||
        has_any(out, credentials, ARRAY_SIZE(credentials)))
        return 1;
    if (has_any(err_text, upstream, ARRAY_SIZE(upstream)) ||
        has_any(out, upstream, ARRAY_SIZE(upstream)))
        return 2;
    return 0;
}
