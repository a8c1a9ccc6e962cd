/* template_base.c - see template_base.h.
 *
 * Order of a build: inputs (apt entries, recipe, packages) -> digest -> done if it is there; else,
 * under a lock: work folder, sources.sh, mmdebstrap with the recipe's hooks, template.json, one
 * syncfs, rename. Each step is a child in namespaces of its own, so that an interrupt leaves neither
 * processes nor mounts. Steps skip their own syncs: a half-made tree is thrown away anyway.
 */
#include "cli/template_base.h"

#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <nettle/sha2.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "cli/apt_sources.h"
#include "cli/child.h"

/* Part of the digest: raise it when this file makes something else from the same inputs. */
#define RECIPE_VERSION "abx-base-1"

#define RECIPE_FILE_MAX (1024 * 1024)
#define TEXT_MAX (1024 * 1024)
#define TAIL_LINES 20
#define TAIL_LINE_MAX 240
#define ENV_MAX 256

extern char **environ;

struct base_build {
    const struct template_base_opts *opts;
    struct os_release os;
    struct apt_sources sources;
    char suite[64];
    char cache[PATH_MAX / 4];
    char recipe[PATH_MAX / 4];
    char work[PATH_MAX / 2]; /* "" while there is none */
    char keyring[256];
    char digest[sizeof "base-" + 2 * SHA256_DIGEST_SIZE];
    struct buf candidates; /* lines for sources.sh */
    struct buf packages;   /* names, one a line */
    struct interrupt interrupt;
    int64_t began_ns;
    int log_fd;
    char tail[TAIL_LINES][TAIL_LINE_MAX]; /* ring of a step's last lines that were not shown */
    size_t tail_count;
};

static void build_done(struct base_build *b)
{
    apt_sources_done(&b->sources);
    buf_done(&b->candidates);
    buf_done(&b->packages);
    fd_close(b->log_fd);
}

static void progress(const struct base_build *b, const char *fmt, ...) _printf_(2, 3);
static void progress(const struct base_build *b, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    if (b->opts->progress_fd < 0)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)dprintf(b->opts->progress_fd, "base template [%3ds] %s\n",
                  (int)((time_mono_ns() - b->began_ns) / NSEC_PER_SEC), text);
}

static int text_error(enum buf_status status, struct abx_err *err)
{
    if (status == BUF_OK)
        return 0;
    return status == BUF_OOM
               ? err_oom(err)
               : err_set(err, ABX_RESOURCE_EXHAUSTED, "apt entries or names too long");
}

/* Lower-case letters, digits and `extra`, beginning with a letter or digit. */
static bool is_name(const char *name, const char *extra)
{
    for (const char *p = name; *p; p++) {
        bool is_plain = (*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9');

        if (!is_plain && (p == name || !strchr(extra, *p)))
            return false;
    }
    return name[0] != '\0' && strlen(name) < 64;
}

/* The recipe lies beside the program in a source tree (build/abx), else where it was installed. */
static int recipe_find(struct base_build *b, struct abx_err *err)
{
    static const char *const places[] = { "../share/template/base", "../share/abx/template/base" };
    char exe[PATH_MAX / 8];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);

    if (b->opts->recipe_dir) {
        (void)snprintf(b->recipe, sizeof b->recipe, "%s", b->opts->recipe_dir);
        return 0;
    }
    exe[MAX(n, 0)] = '\0';
    char *slash = strrchr(exe, '/');
    for (size_t i = 0; slash && i < ARRAY_SIZE(places); i++) {
        (void)snprintf(b->recipe, sizeof b->recipe, "%.*s/%s", (int)(slash - exe), exe, places[i]);
        if (access(b->recipe, R_OK) == 0)
            return 0;
    }
    (void)snprintf(b->recipe, sizeof b->recipe, "%s", ABX_DATADIR "/template/base");
    if (access(b->recipe, R_OK) == 0)
        return 0;
    return err_set(err, ABX_FAILED_PRECONDITION, "no recipe of the template at '%s'", b->recipe);
}

static int keyring_find(struct base_build *b, struct abx_err *err)
{
    static const char *const endings[] = { "gpg", "pgp" };

    for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
        (void)snprintf(b->keyring, sizeof b->keyring, "/usr/share/keyrings/%s-archive-keyring.%s",
                       b->os.id, endings[i]);
        if (access(b->keyring, R_OK) == 0)
            return 0;
    }
    return err_set(err, ABX_FAILED_PRECONDITION, "no '%s': install the package %s", b->keyring,
                   strcmp(b->os.id, "ubuntu") == 0 ? "ubuntu-keyring" : "debian-archive-keyring");
}

static int release_load(struct base_build *b, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(TEXT_MAX);
    const char *path = b->opts->os_release ? b->opts->os_release : "/etc/os-release";

    int r = file_read(AT_FDCWD, path, &text, err);
    r = r < 0 ? r : os_release_parse(buf_slice(&text), &b->os, err);
    if (r < 0)
        return r;
    const char *suite = b->opts->suite ? b->opts->suite : b->os.codename;
    if (!is_name(suite, ".-"))
        return b->opts->suite
                   ? err_set(err, ABX_INVALID_ARGUMENT, "'%s' is no name of a release", suite)
                   : err_set(err, ABX_FAILED_PRECONDITION,
                             "this machine's release has no code name: choose one with --suite");
    (void)snprintf(b->suite, sizeof b->suite, "%s", suite);
    return keyring_find(b, err);
}

static int candidate_add(struct base_build *b, const struct apt_source *src, struct abx_err *err)
{
    const char *suffix = apt_source_suffix(src, &b->os);
    if (!suffix)
        return 0;

    _cleanup_(freep) char *public = apt_uri_public(src->uri);
    if (!public)
        return err_oom(err);
    return text_error(buf_printf(&b->candidates, "%s %s%s %s %s\n", src->uri, b->suite, suffix,
                                 public, apt_source_components(src, &b->os)),
                      err);
}

static int candidates_load(struct base_build *b, struct abx_err *err)
{
    const char *etc_apt = b->opts->etc_apt ? b->opts->etc_apt : "/etc/apt";

    int r = apt_sources_load(&b->sources, etc_apt, err);
    for (size_t i = 0; r == 0 && i < b->sources.count; i++) {
        r = candidate_add(b, &b->sources.items[i], err);
    }
    if (r == 0 && b->candidates.len == 0)
        return err_set(err, ABX_FAILED_PRECONDITION, "no entry in %s is the %s archive of '%s'",
                       etc_apt, b->os.id, b->os.codename);
    return r;
}

static bool has_package(const struct base_build *b, const char *name)
{
    struct slice rest = buf_slice(&b->packages);
    size_t n = strlen(name);

    while (rest.n > 0) {
        const uint8_t *end = memchr(rest.p, '\n', rest.n);
        size_t len = end ? (size_t)(end - rest.p) : rest.n;

        if (len == n && memcmp(rest.p, name, n) == 0)
            return true;
        len += end ? 1 : 0;
        rest = slice_of(rest.p + len, rest.n - len);
    }
    return false;
}

static int package_add(struct base_build *b, const char *name, struct abx_err *err)
{
    if (!is_name(name, "+.-"))
        return err_set(err, ABX_INVALID_ARGUMENT, "'%s' is no name of a package", name);
    if (has_package(b, name))
        return 0;
    return text_error(buf_printf(&b->packages, "%s\n", name), err);
}

static int packages_load(struct base_build *b, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(RECIPE_FILE_MAX);
    char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/packages", b->recipe);
    int r = file_read(AT_FDCWD, path, &text, err);
    if (r < 0)
        return r;
    char *rest = (char *)(uintptr_t)buf_cstr(&text);
    if (!rest)
        return err_oom(err);
    for (char *line = strsep(&rest, "\n"); r == 0 && line; line = strsep(&rest, "\n")) {
        if (line[0] != '\0' && line[0] != '#')
            r = package_add(b, line, err);
    }
    if (r == 0 && b->opts->with_count > TEMPLATE_WITH_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "more than %d packages", TEMPLATE_WITH_MAX);
    for (size_t i = 0; r == 0 && i < b->opts->with_count; i++) {
        r = package_add(b, b->opts->with[i], err);
    }
    return r;
}

static int is_visible(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static int recipe_hash_file(int dirfd, const char *name, struct sha256_ctx *hash,
                            struct abx_err *err)
{
    _cleanup_(buf_done) struct buf text = BUF_INIT(RECIPE_FILE_MAX);

    int r = file_read(dirfd, name, &text, err);
    if (r < 0)
        return err_wrap(err, r, "recipe");
    sha256_update(hash, strlen(name) + 1, (const uint8_t *)name);
    sha256_update(hash, text.len, buf_data(&text));
    return 0;
}

static int recipe_hash(const struct base_build *b, struct sha256_ctx *hash, struct abx_err *err)
{
    _cleanup_(closep) int dirfd = open(b->recipe, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    if (dirfd < 0)
        return err_sys(err, errno, "open '%s'", b->recipe);

    struct dirent **names = NULL;
    int count = scandirat(dirfd, ".", &names, is_visible, alphasort);
    int r = count < 0 ? err_sys(err, errno, "list '%s'", b->recipe) : 0;
    for (int i = 0; i < count; i++) {
        r = r < 0 ? r : recipe_hash_file(dirfd, names[i]->d_name, hash, err);
        free(names[i]);
    }
    free(names);
    return r;
}

static int digest_make(struct base_build *b, struct abx_err *err)
{
    struct sha256_ctx hash;
    uint8_t sum[SHA256_DIGEST_SIZE];
    char head[256];

    sha256_init(&hash);
    int n = snprintf(head, sizeof head, "%s\n%s\n%s\n%s\n", RECIPE_VERSION, b->os.id, b->suite,
                     apt_native_arch());
    sha256_update(&hash, (size_t)n, (const uint8_t *)head);
    sha256_update(&hash, b->candidates.len, buf_data(&b->candidates));
    sha256_update(&hash, b->packages.len, buf_data(&b->packages));
    int r = recipe_hash(b, &hash, err);
    if (r < 0)
        return r;
    sha256_digest(&hash, sizeof sum, sum);
    memcpy(b->digest, "base-", 5);
    hex_encode(sum, sizeof sum, b->digest + 5);
    return 0;
}

static int inputs_load(struct base_build *b, struct abx_err *err)
{
    int r = recipe_find(b, err);

    r = r < 0 ? r : release_load(b, err);
    r = r < 0 ? r : candidates_load(b, err);
    r = r < 0 ? r : packages_load(b, err);
    return r < 0 ? r : digest_make(b, err);
}

/* A step's output: what mmdebstrap and the hooks mark as information or error is shown at once, the last
 * of the rest if the step fails. */
static void step_line(void *user, const char *line)
{
    struct base_build *b = user;

    if (strncmp(line, "I: running --", 13) == 0)
        return; /* mmdebstrap's account of our own hooks; they speak for themselves */
    if (strncmp(line, "I: ", 3) == 0 || strncmp(line, "E: ", 3) == 0)
        progress(b, "%s", line + 3);
    else
        (void)snprintf(b->tail[b->tail_count++ % TAIL_LINES], TAIL_LINE_MAX, "%s", line);
}

static void tail_show(const struct base_build *b)
{
    size_t first = b->tail_count > TAIL_LINES ? b->tail_count - TAIL_LINES : 0;

    for (size_t i = first; i < b->tail_count; i++) {
        progress(b, "| %s", b->tail[i % TAIL_LINES]);
    }
}

/* The caller's environment (proxies, pip's settings) with a plain PATH and locale; what the hooks
 * need; temporary files inside the work folder. `more` holds the strings. */
static void step_env(const struct base_build *b, const char *env[ENV_MAX], char more[4][PATH_MAX])
{
    static const char *const ours[] = { "PATH=",       "LANG=",     "LC_ALL=",
                                        "LANGUAGE=",   "TMPDIR=",   "HOME=",
                                        "APT_CONFIG=", "ABX_WORK=", "ABX_RECIPE=" };
    size_t n = 0;

    (void)snprintf(more[0], PATH_MAX, "TMPDIR=%s/tmp", b->work);
    (void)snprintf(more[1], PATH_MAX, "ABX_WORK=%s", b->work);
    (void)snprintf(more[2], PATH_MAX, "ABX_RECIPE=%s", b->recipe);
    env[n++] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    env[n++] = "LANG=C.UTF-8";
    env[n++] = "HOME=/root";
    env[n++] = "DEBIAN_FRONTEND=noninteractive";
    for (size_t i = 0; i < 3; i++) {
        env[n++] = more[i];
    }
    for (char **e = environ; *e && n < ENV_MAX - 1; e++) {
        bool is_ours = false;

        for (size_t i = 0; i < ARRAY_SIZE(ours); i++) {
            is_ours = is_ours || strncmp(*e, ours[i], strlen(ours[i])) == 0;
        }
        if (!is_ours)
            env[n++] = *e;
    }
    env[n] = NULL;
}

static int step_run(struct base_build *b, const char *const *argv, struct abx_err *err)
{
    const char *env[ENV_MAX];
    _cleanup_(freep) char(*more)[PATH_MAX] = calloc(4, sizeof *more);
    if (!more)
        return err_oom(err);

    step_env(b, env, more);
    b->tail_count = 0;
    struct child_opts child = {
        .argv = argv,
        .env = env,
        .is_sync_skipped = true,
        .log_fd = b->log_fd,
        .on_line = step_line,
        .user = b,
    };
    int r = child_run(&child, &b->interrupt, err);
    if (r < 0 && r != ABX_CANCELED)
        tail_show(b);
    return r;
}

/* Comma-separated package names as mmdebstrap wants them. Owned by the caller. */
static char *include_arg(const struct base_build *b)
{
    char *arg = NULL;

    if (asprintf(&arg, "--include=%.*s", (int)b->packages.len - 1,
                 (const char *)buf_slice(&b->packages).p) < 0)
        return NULL;
    for (char *p = arg; *p; p++) {
        *p = *p == '\n' ? ',' : *p;
    }
    return arg;
}

/* Run by sh with names of packages: writes those that the archives lack to unknown. Uses the private apt
 * of sources.sh, which has left the indexes out. A virtual package is none of its own. */
static const char find_unknown[] =
    "set -eu; apt=$ABX_WORK/apt; export APT_CONFIG=$apt/apt.conf\n"
    "cp \"$ABX_WORK/sources.list\" \"$apt/etc/apt/sources.list\"\n"
    "rm -rf \"$apt/state\"; mkdir -p \"$apt/state/lists/partial\"\n"
    "index='-o Acquire::IndexTargets::deb::Packages::DefaultEnabled=true'\n"
    "apt-get $index -qq update\n"
    "for name; do\n"
    "  apt-cache $index show \"$name\" >/dev/null 2>&1 ||\n"
    "    apt-get $index -s -qq install \"$name\" >/dev/null 2>&1 ||\n"
    "    printf '%s ' \"$name\" >>\"$ABX_WORK/unknown\"\n"
    "done\n";

/* Says which of the packages asked for there are not, before a minute of building finds out. */
static int names_check(struct base_build *b, struct abx_err *err)
{
    const char *argv[TEMPLATE_WITH_MAX + 5] = { "/bin/sh", "-c", find_unknown, "find-unknown" };
    _cleanup_(buf_done) struct buf unknown = BUF_INIT(TEXT_MAX);
    char path[PATH_MAX];
    int r;

    if (b->opts->with_count == 0)
        return 0;
    for (size_t i = 0; i < b->opts->with_count; i++)
        argv[4 + i] = b->opts->with[i];
    r = step_run(b, argv, err);
    if (r < 0)
        return r == ABX_CANCELED ? r : err_wrap(err, r, "read the archives' indexes");
    (void)snprintf(path, sizeof path, "%s/unknown", b->work);
    if (access(path, F_OK) < 0)
        return 0;
    r = file_read(AT_FDCWD, path, &unknown, err);
    return r < 0 ? r
                 : err_set(err, ABX_NOT_FOUND, "--with: the archives of %s %s have no package %.*s",
                           b->os.id, b->suite, (int)MAX(unknown.len, (size_t)1) - 1,
                           (const char *)buf_slice(&unknown).p);
}

static int tree_make(struct base_build *b, struct abx_err *err)
{
    _cleanup_(freep) char *include = include_arg(b);
    char rootfs[PATH_MAX], list[PATH_MAX], sources[PATH_MAX], arch[32], dpkg[PATH_MAX];
    if (!include)
        return err_oom(err);

    (void)snprintf(sources, sizeof sources, "%s/sources.sh", b->recipe);
    (void)snprintf(rootfs, sizeof rootfs, "%s/out/rootfs", b->work);
    (void)snprintf(list, sizeof list, "%s/sources.list", b->work);
    (void)snprintf(dpkg, sizeof dpkg, "--dpkgopt=%s/dpkg.cfg", b->recipe);
    (void)snprintf(arch, sizeof arch, "--architectures=%s", apt_native_arch());
    const char *const check[] = {
        "/bin/sh", sources, b->work, b->os.id, b->suite, b->keyring, NULL
    };
    const char *const make[] = {
        "mmdebstrap",
        "--mode=root",
        "--format=directory",
        "--variant=minbase",
        arch,
        include,
        dpkg,
        "--setup-hook=mkdir -p \"$1/etc/apt/apt.conf.d\"",
        "--setup-hook=cp \"$ABX_WORK/apt.conf\" \"$1/etc/apt/apt.conf.d/00abx-build\"",
        "--customize-hook=\"$ABX_RECIPE/setup.sh\" \"$1\" \"$ABX_WORK\"",
        "--customize-hook=\"$ABX_RECIPE/node.sh\" \"$1\" \"$ABX_WORK\"",
        "--customize-hook=\"$ABX_RECIPE/finish.sh\" \"$1\"",
        b->suite,
        rootfs,
        list,
        NULL,
    };

    progress(b, "asking the archives of %s %s", b->os.id, b->suite);
    int r = step_run(b, check, err);
    if (r < 0)
        return r == ABX_CANCELED ? r : err_wrap(err, r, "find the machine's archives");
    r = names_check(b, err);
    if (r < 0)
        return r;
    r = step_run(b, make, err);
    return r == ABX_NOT_FOUND ? err_set(err, ABX_FAILED_PRECONDITION,
                                        "mmdebstrap is missing: apt-get install mmdebstrap")
                              : r;
}

static int tree_size(const char *path, uint64_t *ret_bytes, struct abx_err *err)
{
    char *const roots[] = { (char *)(uintptr_t)path, NULL };
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    uint64_t bytes = 0;

    if (!tree)
        return err_sys(err, errno, "walk '%s'", path);
    for (FTSENT *e = fts_read(tree); e; e = fts_read(tree)) {
        if (e->fts_info != FTS_DP && e->fts_statp)
            bytes += (uint64_t)e->fts_statp->st_blocks * 512;
    }
    (void)fts_close(tree);
    *ret_bytes = bytes;
    return 0;
}

/* Names hold nothing that JSON would have to escape: is_name saw them all. */
static int json_write(const struct base_build *b, uint64_t bytes, int outfd, struct abx_err *err)
{
    _cleanup_(buf_done) struct buf json = BUF_INIT(TEXT_MAX);
    char created[RFC3339_SIZE];
    struct slice names = buf_slice(&b->packages);

    time_format_rfc3339(time_wall_ms(), created);
    enum buf_status s =
        buf_printf(&json,
                   "{\"name\":\"base\",\"digest\":\"%s\",\"created\":\"%s\",\"suite\":\"%s\","
                   "\"size_bytes\":%llu,\"default_user\":\"user\","
                   "\"default_workdir\":\"/home/user\",\"packages\":[\"",
                   b->digest, created, b->suite, (unsigned long long)bytes);
    for (size_t i = 0; s == BUF_OK && i + 1 < names.n; i++) {
        s = names.p[i] == '\n' ? buf_append_str(&json, "\",\"")
                               : buf_append_byte(&json, names.p[i]);
    }
    if (s == BUF_OK)
        s = buf_append_str(&json, "\"]}\n");
    int r = text_error(s, err);
    return r < 0
               ? r
               : file_replace(outfd, "template.json", buf_data(&json), json.len, 0644, false, err);
}

/* Makes the tree a whole template and moves it to its place. */
static int tree_publish(struct base_build *b, const char *final, struct abx_err *err)
{
    char out[PATH_MAX], rootfs[PATH_MAX];
    uint64_t bytes = 0;

    (void)snprintf(out, sizeof out, "%s/out", b->work);
    (void)snprintf(rootfs, sizeof rootfs, "%s/out/rootfs", b->work);
    _cleanup_(closep) int outfd = open(out, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    if (outfd < 0)
        return err_sys(err, errno, "open '%s'", out);
    int r = tree_size(rootfs, &bytes, err);
    r = r < 0 ? r : json_write(b, bytes, outfd, err);
    if (r < 0)
        return r;
    if (chmod(rootfs, 0755) < 0)
        return err_sys(err, errno, "chmod '%s'", rootfs);
    progress(b, "writing %llu MB to disk", (unsigned long long)(bytes / 1000000));
    if (syncfs(outfd) < 0)
        return err_sys(err, errno, "sync '%s'", out);
    if (rename(out, final) < 0)
        return err_sys(err, errno, "rename to '%s'", final);
    return 0;
}

/* Removes what builds left that were killed. Only under the lock. */
static int leftovers_remove(const struct base_build *b, int dirfd, struct abx_err *err)
{
    _cleanup_(closep) int listfd = openat(dirfd, ".", O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    DIR *dir = listfd < 0 ? NULL : fdopendir(listfd);
    int r = 0;

    if (!dir)
        return err_sys(err, errno, "list '%s/templates'", b->cache);
    (void)TAKE_FD(listfd);
    for (struct dirent *d = readdir(dir); r == 0 && d; d = readdir(dir)) {
        if (strncmp(d->d_name, "tmp.", 4) == 0)
            r = path_remove_tree(dirfd, d->d_name, err);
    }
    (void)closedir(dir);
    return r;
}

static int work_make(struct base_build *b, struct abx_err *err)
{
    char path[PATH_MAX];

    (void)snprintf(b->work, sizeof b->work, "%s/templates/tmp.XXXXXX", b->cache);
    if (!mkdtemp(b->work)) {
        int sys = errno;
        b->work[0] = '\0';
        return err_sys(err, sys, "make a folder in '%s/templates'", b->cache);
    }
    _cleanup_(closep) int workfd = open(b->work, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    if (workfd < 0 || mkdirat(workfd, "tmp", 0700) < 0 || mkdirat(workfd, "out", 0755) < 0)
        return err_sys(err, errno, "set up '%s'", b->work);
    (void)snprintf(path, sizeof path, "%s/log", b->work);
    b->log_fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (b->log_fd < 0)
        return err_sys(err, errno, "open '%s'", path);
    return file_replace(workfd, "candidates", buf_data(&b->candidates), b->candidates.len, 0600,
                        false, err);
}

static int build_locked(struct base_build *b, int dirfd, const char *final, struct abx_err *err)
{
    struct abx_err cleanup = { 0 };

    int r = interrupt_init(&b->interrupt, err);
    if (r < 0)
        return r;
    r = leftovers_remove(b, dirfd, err);
    r = r < 0 ? r : work_make(b, err);
    r = r < 0 ? r : tree_make(b, err);
    r = r < 0 ? r : tree_publish(b, final, err);
    if (b->work[0] != '\0' && path_remove_tree(dirfd, strrchr(b->work, '/') + 1, &cleanup) < 0) {
        progress(b, "could not remove '%s': %s", b->work, cleanup.msg);
        if (r == 0) {
            r = err_set(err, cleanup.code, "%s", cleanup.msg);
        }
    }
    interrupt_done(&b->interrupt);
    return r;
}

/* Waits for the lock of the template folder. */
static int lock_take(const struct base_build *b, int dirfd, int *ret_fd, struct abx_err *err)
{
    _cleanup_(closep) int fd = openat(dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, errno, "open '%s/templates/lock'", b->cache);

    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            return err_sys(err, errno, "lock '%s/templates'", b->cache);
        progress(b, "waiting for another build");
        while (flock(fd, LOCK_EX) < 0) {
            if (errno != EINTR)
                return err_sys(err, errno, "lock '%s/templates'", b->cache);
        }
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* The template folder: only root may look into it, because the trees hold setuid programs that get
 * no updates. */
static int cache_open(const struct base_build *b, int *ret_fd, struct abx_err *err)
{
    char path[PATH_MAX];

    if (b->cache[0] != '/')
        return err_set(err, ABX_INVALID_ARGUMENT, "'%s' is no absolute path", b->cache);
    (void)snprintf(path, sizeof path, "%s/templates", b->cache);
    int r = path_mkdirs(AT_FDCWD, path, 0755, err);
    if (r < 0)
        return r;
    if (chmod(path, 0700) < 0)
        return err_sys(err, errno, "chmod '%s'", path);
    *ret_fd = open(path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    return *ret_fd < 0 ? err_sys(err, errno, "open '%s'", path) : 0;
}

/* Is another `base` newer than the one of `digest`? */
static bool is_outdated(const struct base_build *b, int dirfd)
{
    char name[PATH_MAX];
    struct stat own, other;
    struct dirent **names = NULL;
    int count = scandirat(dirfd, ".", &names, is_visible, alphasort);
    bool is_old = false;

    (void)snprintf(name, sizeof name, "%s/template.json", b->digest);
    bool is_known = fstatat(dirfd, name, &own, 0) == 0;
    for (int i = 0; i < count; i++) {
        (void)snprintf(name, sizeof name, "%s/template.json", names[i]->d_name);
        if (strncmp(names[i]->d_name, "base-", 5) == 0 && fstatat(dirfd, name, &other, 0) == 0 &&
            is_known && other.st_mtime > own.st_mtime)
            is_old = true;
        free(names[i]);
    }
    free(names);
    return is_old;
}

/* The newest template of a name is the one that the name means: what was asked for last is made the
 * newest without being built again. */
static int base_renew(const struct base_build *b, int dirfd, const char *final, struct abx_err *err)
{
    char rootfs[PATH_MAX];
    uint64_t bytes = 0;

    if (!is_outdated(b, dirfd))
        return 0;
    (void)path_join(rootfs, sizeof rootfs, final, "rootfs");
    _cleanup_(closep) int outfd = openat(dirfd, b->digest, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    if (outfd < 0)
        return err_sys(err, errno, "open '%s'", final);
    int r = tree_size(rootfs, &bytes, err);
    return r < 0 ? r : json_write(b, bytes, outfd, err);
}

static int build_run(struct base_build *b, char ret_dir[PATH_MAX], struct abx_err *err)
{
    _cleanup_(closep) int dirfd = -EBADF;
    _cleanup_(closep) int lock = -EBADF;
    char final[PATH_MAX];

    int r = inputs_load(b, err);
    r = r < 0 ? r : cache_open(b, &dirfd, err);
    if (r < 0)
        return r;
    (void)snprintf(final, sizeof final, "%s/templates/%s", b->cache, b->digest);
    if (access(final, F_OK) < 0) {
        r = lock_take(b, dirfd, &lock, err);
        if (r == 0 && access(final, F_OK) < 0)
            r = build_locked(b, dirfd, final, err);
        if (r < 0)
            return r;
    } else {
        r = base_renew(b, dirfd, final, err);
        if (r < 0)
            return r;
    }
    memcpy(ret_dir, final, sizeof final);
    return 0;
}

int template_base_build(const struct template_base_opts *opts, char ret_dir[PATH_MAX],
                        struct abx_err *err)
{
    struct base_build b = {
        .opts = opts,
        .candidates = BUF_INIT(TEXT_MAX),
        .packages = BUF_INIT(TEXT_MAX),
        .interrupt = { .fd = -EBADF },
        .began_ns = time_mono_ns(),
        .log_fd = -EBADF,
    };
    const char *cache = opts->cache_dir ? opts->cache_dir : TEMPLATE_CACHE_DIR;

    if (geteuid() != 0)
        return err_set(err, ABX_PERMISSION_DENIED, "building a template needs root");
    if (strlen(cache) >= sizeof b.cache)
        return err_set(err, ABX_INVALID_ARGUMENT, "path of the cache too long");
    (void)snprintf(b.cache, sizeof b.cache, "%s", cache);
    (void)umask(022); /* what the recipe makes is for all users of a sandbox */
    int r = build_run(&b, ret_dir, err);
    build_done(&b);
    return r;
}
