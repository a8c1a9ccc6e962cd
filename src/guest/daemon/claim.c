/* claim.c - see claim.h. */
#include "guest/daemon/claim.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/packet.h"
#include "guest/daemon/work.h"
#include "guest/init/supervisor.h"

#define RUN_DIR "/run/e2b"

struct telling {
    struct work work;
    char *sandbox_id;
    char *template_id;
};

void claim_keep(struct slice message)
{
    _cleanup_(closep) int fd = memfd_create("abx-identity", MFD_CLOEXEC);
    struct init_hello keep = { .kind = INIT_KEEP, .pid = getpid() };
    struct abx_err err = { 0 };

    if (fd >= 0 && fd_write_all(fd, message.p, message.n) == 0 &&
        packet_send(GUEST_FD_DAEMON, &keep, sizeof(keep), &fd, 1, MSG_DONTWAIT) == 0)
        return;
    (void)err_sys(&err, errno, "keep the identity for a restart");
    log_err("identity is not safe from a crash", &err);
}

void claim_find(struct identity *id)
{
    _cleanup_(freep) uint8_t *bytes = malloc(IDENTITY_MESSAGE_MAX);
    struct abx_err err = { 0 };
    ssize_t n = bytes ? pread(INIT_FD_KEPT, bytes, IDENTITY_MESSAGE_MAX, 0) : -1;

    if (n <= 0)
        return; /* the first daemon, or not claimed yet */
    if (identity_decode(id, slice_of(bytes, (size_t)n), &err) < 0)
        log_err("kept identity refused", &err);
}

/* A pooled sandbox got its name only now; its files still have the pool's. Nothing of a user has run
 * yet, so they are replaced whole. */
static int tell_host_name(struct abx_err *err)
{
    _cleanup_(buf_done) struct buf old = BUF_INIT(256);
    _cleanup_(closep) int etc = open("/etc", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char name[HOST_NAME_MAX + 1] = "", text[2 * HOST_NAME_MAX + 128];
    int n, r;

    if (etc < 0 || gethostname(name, sizeof(name) - 1) < 0)
        return err_sys(err, errno, "host name");
    n = snprintf(text, sizeof(text), "%s\n", name);
    if (file_read(etc, "hostname", &old, NULL) == 0 &&
        slice_eq(buf_slice(&old), slice_of(text, (size_t)n)))
        return 0;
    r = file_replace(etc, "hostname", text, (size_t)n, 0644, false, err);
    if (r < 0)
        return r;
    n = snprintf(text, sizeof(text),
                 "127.0.0.1\tlocalhost\n127.0.1.1\t%s\n"
                 "::1\tlocalhost ip6-localhost ip6-loopback\n",
                 name);
    return file_replace(etc, "hosts", text, (size_t)n, 0644, false, err);
}

static void tell_run(struct work *w)
{
    struct telling *t = container_of(w, struct telling, work);
    const char *const files[][2] = {
        { ".E2B_SANDBOX", "true" },
        { ".E2B_SANDBOX_ID", t->sandbox_id },
        { ".E2B_TEMPLATE_ID", t->template_id },
    };
    _cleanup_(closep) int dir = -EBADF;

    if (mkdir(RUN_DIR, 0755) < 0 && errno != EEXIST) {
        (void)err_sys(&w->err, errno, "make '%s'", RUN_DIR);
        return;
    }
    dir = open(RUN_DIR, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0) {
        (void)err_sys(&w->err, errno, "open '%s'", RUN_DIR);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(files) && !w->err.code; i++)
        (void)file_replace(dir, files[i][0], files[i][1], strlen(files[i][1]), 0644, false,
                           &w->err);
    if (!w->err.code)
        (void)tell_host_name(&w->err);
}

static void telling_free(struct telling *t)
{
    free(t->sandbox_id);
    free(t->template_id);
    free(t);
}
DEFINE_CLEANUP(struct telling *, telling_free)

static void tell_done(struct work *w)
{
    if (w->err.code)
        log_err("identity files", &w->err); /* a template without /run: commands have the same
                                               in their environment */
    telling_free(container_of(w, struct telling, work));
}

void claim_tell(uv_loop_t *loop, const struct identity *id)
{
    _cleanup_(telling_freep) struct telling *t = calloc(1, sizeof(*t));

    if (!t)
        return;
    t->sandbox_id = strdup(id->sandbox_id);
    t->template_id = strdup(id->template_id);
    if (t->sandbox_id && t->template_id &&
        work_start(loop, &t->work, NULL, tell_run, tell_done) == 0)
        TAKE_PTR(t);
}
