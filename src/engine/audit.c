/* audit.c - looks for what no one owns, at start and on demand. See engine.h; the worker's part is
 * worker_audit.c.
 *
 * Two audits in a row, and only what both found: between record and table things move. Records are
 * compared here: each one belongs to an entry of the table, always.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/netns.h"

#define REPLY_FINDINGS_MAX 400u
#define TEXT_SIZE 128
#define WAITING_MAX 8u

struct audit {
    struct audit *next; /* while it waits for the one before */
    struct engine *engine;
    bool must_repair;
    uint64_t conn, seq;
    unsigned round;
    struct finding *list;
    size_t n;
    unsigned pending, repaired;
};

static void begin_next(struct engine *e);

static void audit_free(struct audit *a)
{
    struct engine *e = a->engine;

    e->audits = a->next;
    free(a->list);
    free(a);
    begin_next(e);
}

static void describe(const struct finding *f, char to[TEXT_SIZE])
{
    switch (f->kind) {
    case FINDING_CGROUP:
        (void)snprintf(to, TEXT_SIZE, "cgroup '%s' without sandbox", f->name);
        return;
    case FINDING_UPPER:
        (void)snprintf(to, TEXT_SIZE, "upper '%s' without sandbox", f->name);
        return;
    case FINDING_RECORD:
        (void)snprintf(to, TEXT_SIZE, "record '%s' without sandbox", f->name);
        return;
    case FINDING_UIDS:
        (void)snprintf(to, TEXT_SIZE, "uid range %u leased without sandbox", f->number);
        return;
    case FINDING_PROCESS:
        (void)snprintf(to, TEXT_SIZE, "process %u without sandbox", f->number);
        return;
    case FINDING_NETNS:
        (void)snprintf(to, TEXT_SIZE,
                       "network namespace %u without sandbox, held by descriptor %d of process %u",
                       f->netns, f->fd, f->number);
        return;
    }
}

/* --- answer ------------------------------------------------------------------------------------- */

static void finish(struct audit *a, const struct abx_err *failure)
{
    struct engine *e = a->engine;
    static char text[REPLY_FINDINGS_MAX][TEXT_SIZE]; /* one audit at a time */
    char *list[REPLY_FINDINGS_MAX];
    Abx__Ipc__Frame f = ABX__IPC__FRAME__INIT;
    Abx__Ipc__AuditReply body = ABX__IPC__AUDIT_REPLY__INIT;

    for (size_t i = 0; i < a->n && i < REPLY_FINDINGS_MAX; i++) {
        describe(&a->list[i], text[i]);
        list[body.n_findings++] = text[i];
        log_warn("audit", "found", text[i], "repaired", a->must_repair ? "yes" : "no", NULL);
    }
    body.findings = list;
    body.repaired = a->repaired;
    f.body_case = ABX__IPC__FRAME__BODY_AUDIT_REPLY;
    f.audit_reply = &body;
    if (failure)
        log_err("audit failed", failure);
    if (failure && a->conn != 0)
        server_reply_error(e, a->conn, a->seq, failure);
    else if (a->conn != 0)
        server_reply(e, a->conn, a->seq, &f);
    audit_free(a);
    engine_stop_if_idle(e);
}

/* --- repair ------------------------------------------------------------------------------------- */

static void on_removed(void *user, const struct abx_err *failure)
{
    struct audit *a = user;

    a->repaired += failure ? 0 : 1;
    if (--a->pending == 0)
        finish(a, NULL);
}

static void remove_by_name(struct audit *a, const char *name)
{
    struct sandbox *sb = table_find(a->engine->table, name);
    struct abx_err err;

    /* Groups of a stopped one, of its first life. */
    if (sb && sb->state == SANDBOX_STOPPED) {
        sb->keeps_upper = true;
        a->pending++;
        sandbox_add_waiter(sb, (struct waiter){ .done = on_removed, .user = a });
        sandbox_remove_keeping(a->engine, sb);
        return;
    }
    /* A group and an upper of one name are one sandbox's. */
    if (!record_name_is_valid(name) || sb)
        return;
    if (table_add(a->engine->table, name, &sb, &err) < 0) {
        log_err("audit", &err);
        return;
    }
    sb->state = SANDBOX_PREPARED;
    a->pending++;
    sandbox_remove_then(a->engine, sb, on_removed, a);
}

static void remove_record(struct audit *a, const char *name)
{
    struct abx_err err;

    if (record_name_is_valid(name))
        remove_by_name(a, name);
    else if (record_remove(a->engine->records_fd, name, &err) == 0)
        a->repaired++;
    else
        log_err("audit", &err);
}

static void kill_process(struct audit *a, pid_t pid)
{
    _cleanup_(closep) int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    /* Found twice under a uid that only our sandboxes have. */
    if (fd >= 0 && syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0)
        a->repaired++;
}

static int is_found(void *user, int fd, int netns_fd, ino_t inode)
{
    const struct finding *f = user;

    (void)netns_fd;
    return fd == f->fd && inode == f->netns;
}

/* Only its end takes a descriptor from another process, and with it the connections that go through it:
 * that is for an operator to ask for, not for our own start. Gateways are started again, and so are
 * workers; what this process itself holds lives as long as it. */
static void end_holder(struct audit *a, const struct finding *f)
{
    pid_t pid = (pid_t)f->number;
    _cleanup_(closep) int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct abx_err err = { 0 };
    int r;

    if (a->conn == 0 || pid == getpid())
        return;
    r = pidfd < 0 ? 0 : netns_each_held(pid, is_found, (void *)(uintptr_t)f, &err);
    /* 0: closed meanwhile, or the process ended for the finding before. */
    if (r == 0 || (r == 1 && syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) == 0))
        a->repaired++;
    else if (r < 0)
        log_err("audit", &err);
}

static void repair(struct audit *a)
{
    a->pending = 1; /* ours, until all are ordered */
    for (size_t i = 0; i < a->n; i++) {
        const struct finding *f = &a->list[i];

        switch (f->kind) {
        case FINDING_CGROUP:
        case FINDING_UPPER:
            remove_by_name(a, f->name);
            break;
        case FINDING_RECORD:
            remove_record(a, f->name);
            break;
        case FINDING_UIDS:
            uid_put(a->engine, (uid_t)f->number);
            a->repaired++;
            break;
        case FINDING_PROCESS:
            kill_process(a, (pid_t)f->number);
            break;
        case FINDING_NETNS:
            end_holder(a, f);
            break;
        }
    }
    if (--a->pending == 0)
        finish(a, NULL);
}

/* --- rounds ------------------------------------------------------------------------------------- */

static bool contains(const struct finding *list, size_t n, const struct finding *f)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].kind == f->kind && list[i].number == f->number && list[i].netns == f->netns &&
            list[i].fd == f->fd && strcmp(list[i].name, f->name) == 0)
            return true;
    return false;
}

static int take_first(struct audit *a, const struct job_result *r, struct abx_err *err)
{
    a->list = calloc(r->u.audit.n + 1, sizeof *a->list);
    if (!a->list)
        return err_oom(err);
    memcpy(a->list, r->u.audit.list, r->u.audit.n * sizeof *a->list);
    a->n = r->u.audit.n;
    return 0;
}

static void keep_common(struct audit *a, const struct job_result *r)
{
    size_t n = 0;

    for (size_t i = 0; i < a->n; i++)
        if (contains(r->u.audit.list, r->u.audit.n, &a->list[i]))
            a->list[n++] = a->list[i];
    a->n = n;
}

static int add_record(void *user, const char *name)
{
    struct audit *a = user;
    struct finding *more;
    char owner[RECORD_NAME_SIZE];

    /* Half-written ones ("<name>.<random>.tmp") belong to the record that is being written. */
    (void)snprintf(owner, sizeof owner, "%.*s", (int)strcspn(name, "."), name);
    if (table_find(a->engine->table, owner))
        return 0;
    more = reallocarray(a->list, a->n + 1, sizeof *more);
    if (!more)
        return ABX_RESOURCE_EXHAUSTED;
    a->list = more;
    more[a->n] = (struct finding){ .kind = FINDING_RECORD };
    (void)snprintf(more[a->n++].name, sizeof more->name, "%s", name);
    return 0;
}

static int submit(struct audit *a, struct abx_err *err);

static void on_audited(void *user, const struct job_result *r, int *fds, size_t n_fds)
{
    struct audit *a = user;
    struct abx_err err = r->err;
    int code;

    (void)fds;
    (void)n_fds;
    if (err.code == 0 && a->round++ == 0) {
        if (take_first(a, r, &err) == 0 && submit(a, &err) == 0)
            return;
    } else if (err.code == 0) {
        keep_common(a, r);
        code = record_each(a->engine->records_fd, add_record, a, &err);
        if (code < 0 && err.code == 0)
            (void)err_oom(&err);
    }
    if (err.code)
        finish(a, &err);
    else if (a->must_repair)
        repair(a);
    else
        finish(a, NULL);
}

static int submit(struct audit *a, struct abx_err *err)
{
    struct engine *e = a->engine;
    struct job j = { .kind = JOB_AUDIT };
    struct job_audit *to = &j.audit;
    size_t n = 0;

    to->holders[n++] = getpid();
    n += crew_pids(e->crew, to->holders + n, JOB_HOLDERS_MAX - n);
    n += sockets_peers(e->sockets, to->holders + n, JOB_HOLDERS_MAX - n);
    to->n = (uint32_t)n;
    return crew_submit(a->engine->crew, WORKER_PREPARE, &j, NULL, 0,
                       (struct job_owner){ on_audited, NULL, a }, err);
}

static void begin_next(struct engine *e)
{
    struct audit *a = e->audits;
    struct abx_err err;

    if (a && submit(a, &err) < 0)
        finish(a, &err);
}

void audits_drop(struct engine *e)
{
    while (e->audits) {
        struct audit *a = e->audits;

        e->audits = a->next;
        free(a->list);
        free(a);
    }
}

void audit_begin(struct engine *e, bool must_repair, uint64_t conn, uint64_t seq)
{
    struct audit *a = calloc(1, sizeof *a), **end = &e->audits;
    struct abx_err err;
    unsigned n = 0;

    for (; *end; end = &(*end)->next)
        n++;
    if (!a || n >= WAITING_MAX) {
        free(a);
        (void)err_reason(&err, ABX_REASON_BUSY, "too many audits");
        server_reply_error(e, conn, seq, &err);
        return;
    }
    *a = (struct audit){ .engine = e, .must_repair = must_repair, .conn = conn, .seq = seq };
    *end = a;
    if (n == 0)
        begin_next(e);
}
