/* box.c - one sandbox. See internal.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "egress/internal.h"
#include "egress/names.h"

#define ACCEPTS_PER_TURN 64u
#define TELL_BURST 20u
#define TELL_PER_SECOND 2u
#define COUNT_SIZE 4096u
#define FIELDS_MAX 12u
#define UDP_WHY "only DNS goes out over UDP"
#define FDS_RESERVED 128u /* links, listeners of new sandboxes */
#define FEW_FLOWS 32u

/* Outlives its box until the loop has let go of the handle. */
struct listening {
    uv_poll_t poll;
    struct box *box; /* NULL once it is closed */
    int fd;
    bool is_resting; /* no descriptors: until the next tick */
};

/* --- denials ------------------------------------------------------------------------------------ */

static bool may_tell(struct box *b)
{
    bool may =
        budget_take(&b->tell_budget, TELL_PER_SECOND, TELL_BURST, uv_now(b->egress->opts.loop));

    b->n_untold += !may;
    return may;
}

void box_tell(struct box *b, Abx__Ipc__Log__Source source, Abx__Ipc__Log__Level level,
              const char *message, const char *const *pairs)
{
    struct ipc_conn *conn = ipc_client_conn(b->egress->control);
    Abx__Ipc__LogField rows[FIELDS_MAX], *list[FIELDS_MAX];
    Abx__Ipc__Frame frame = ABX__IPC__FRAME__INIT;
    Abx__Ipc__Log log = ABX__IPC__LOG__INIT;

    if (!conn)
        return;
    for (; pairs[0] && log.n_fields < FIELDS_MAX; pairs += 2) {
        if (!pairs[1])
            continue;
        abx__ipc__log_field__init(&rows[log.n_fields]);
        rows[log.n_fields].name = (char *)(uintptr_t)pairs[0];
        rows[log.n_fields].value = (char *)(uintptr_t)pairs[1];
        list[log.n_fields] = &rows[log.n_fields];
        log.n_fields++;
    }
    log.fields = list;
    log.sandbox_id = b->id;
    log.source = source;
    log.level = level;
    log.message = (char *)(uintptr_t)message;
    frame.body_case = ABX__IPC__FRAME__BODY_LOG;
    frame.log = &log;
    (void)ipc_conn_send(conn, &frame, NULL, 0,
                        NULL); /* a control that does not read is no reason to wait */
}

/* While control is away the service's log alone has it. */
static void tell_denied(struct box *b, const char *message, const char *const *pairs)
{
    box_tell(b, ABX__IPC__LOG__SOURCE__EGRESS, ABX__IPC__LOG__LEVEL__WARN, message, pairs);
}

void box_denied(struct box *b, const char *to, const char *name, const char *rule, const char *why)
{
    char untold[24], message[512];
    const char *pairs[] = { "to",     to,  "name",   name, "rule", rule,
                            "reason", why, "untold", NULL, NULL };

    if (!may_tell(b))
        return;
    (void)snprintf(untold, sizeof untold, "%" PRIu64, b->n_untold);
    pairs[9] = b->n_untold ? untold : NULL;
    (void)snprintf(message, sizeof message, "Denied: %s%s%.256s: %s", to, name ? ", " : "",
                   name ? name : "", why);
    tell_denied(b, message, pairs);
    log_info("egress denied", "id", b->id, "to", to, "rule", rule, "why", why,
             name          ? "name"
             : b->n_untold ? "untold"
                           : NULL,
             name ? name : untold, NULL);
    if (!name)
        b->n_untold = 0;
}

static void tell_datagrams(struct box *b)
{
    uint64_t n = b->refused ? *b->refused : 0;
    char count[24];

    if (n == b->refused_told)
        return;
    (void)snprintf(count, sizeof count, "%" PRIu64, n - b->refused_told);
    count_add(&b->egress->opts.counters->denied[COUNT_DENIED_DATAGRAMS], n - b->refused_told);
    b->refused_told = n;
    if (!may_tell(b))
        return;
    log_info("egress denied", "id", b->id, "rule", "udp", "why", UDP_WHY, "datagrams", count, NULL);
    tell_denied(
        b, "Denied: UDP: " UDP_WHY,
        (const char *const[]){ "rule", "udp", "reason", UDP_WHY, "datagrams", count, NULL });
}

/* --- sockets ------------------------------------------------------------------------------------ */

static void on_listening_closed(uv_handle_t *handle)
{
    free(container_of((uv_poll_t *)(void *)handle, struct listening, poll));
}

static void listening_close(struct listening *l)
{
    if (!l)
        return;
    l->box = NULL;
    uv_close((uv_handle_t *)&l->poll, on_listening_closed);
    fd_close(TAKE_FD(l->fd));
}

static void on_tcp(uv_poll_t *poll, int status, int events)
{
    struct listening *l = container_of(poll, struct listening, poll);

    (void)events;
    if (status < 0) { /* the namespace is being torn down */
        (void)uv_poll_stop(poll);
        return;
    }
    for (unsigned i = 0; l->box && i < ACCEPTS_PER_TURN; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            flow_begin(l->box, fd);
        } else if (errno != ECONNABORTED && errno != EINTR) {
            if (errno != EAGAIN) { /* no descriptors, no memory: the callers wait meanwhile */
                l->is_resting = true;
                (void)uv_poll_stop(poll);
            }
            return;
        }
    }
}

static struct listening *listening_new(struct box *b, int fd)
{
    struct listening *l = calloc(1, sizeof *l);

    if (!l || uv_poll_init(b->egress->opts.loop, &l->poll, fd) < 0) {
        free(l);
        fd_close(fd);
        return NULL;
    }
    l->box = b;
    l->fd = fd;
    (void)uv_poll_start(&l->poll, UV_READABLE, on_tcp);
    return l;
}

/* One that cannot be watched is no way out: the engine is asked again. */
void box_steer(struct box *b, int fds[BOX_FDS], uid_t root_uid)
{
    enum { TCP, UDP, COUNT, LINK, REPORT };
    void *count;

    box_unsteer(b);
    count = mmap(NULL, COUNT_SIZE, PROT_READ, MAP_SHARED, fds[COUNT], 0);
    if (count == MAP_FAILED)
        log_warn("refused datagrams are not counted", "id", b->id, "why", strerror(errno), NULL);
    fd_close(TAKE_FD(fds[COUNT]));
    b->refused = count == MAP_FAILED ? NULL : count;
    b->refused_told = 0;
    b->names = names_new(b, TAKE_FD(fds[UDP]));
    b->link_fd = TAKE_FD(fds[LINK]);
    b->tcp = listening_new(b, TAKE_FD(fds[TCP]));
    b->reports = fds[REPORT] >= 0 ? reports_new(b, TAKE_FD(fds[REPORT]), root_uid) : NULL;
    if (!b->reports)
        log_warn("a sandbox cannot report its processes", "id", b->id, NULL);
    if (!b->tcp || !b->names) {
        box_unsteer(b);
        b->ask_at = uv_now(b->egress->opts.loop) + 1000;
    }
}

/* Sockets first: without the link the address that they are bound to is one like any other. */
void box_unsteer(struct box *b)
{
    struct flow *next;

    reports_close(TAKE_PTR(b->reports));
    listening_close(TAKE_PTR(b->tcp));
    names_close(TAKE_PTR(b->names));
    for (struct flow *f = b->flows; f; f = next) {
        next = flow_next(f);
        flow_break(f);
    }
    resolver_disown(b->egress->resolver, &b->lookups);
    fd_close(TAKE_FD(b->link_fd));
    tell_datagrams(b);
    if (b->refused)
        (void)munmap((void *)(uintptr_t)b->refused, COUNT_SIZE);
    b->refused = NULL;
}

/* --- life --------------------------------------------------------------------------------------- */

struct box *box_new(struct egress *e, const char *id, struct abx_err *err)
{
    struct box *b = calloc(1, sizeof *b);

    if (!b) {
        (void)err_oom(err);
        return NULL;
    }
    (void)snprintf(b->id, sizeof b->id, "%s", id);
    b->egress = e;
    b->link_fd = -EBADF;
    return b;
}

void box_free(struct box *b)
{
    box_unsteer(b);
    policy_free(b->policy);
    pins_done(&b->pins);
    free(b);
}

bool box_has_room(const struct box *b)
{
    const struct egress *e = b->egress;
    size_t used =
        2 * (e->n_flows + e->n_veils) + e->n_streams + 4 * e->n_boxes + 2 * e->pipes.n_open;
    size_t max = b->n_flows > FEW_FLOWS ? e->opts.max_fds / 4 * 3 : e->opts.max_fds;

    used += MIN(e->opts.max_fds / FDS_PER_LOOKUP, (size_t)RESOLVER_LOOKUPS_MAX);
    return used + FDS_RESERVED <= max;
}

void box_recheck(struct box *b)
{
    struct flow *next;

    for (struct flow *f = b->flows; f; f = next) {
        next = flow_next(f);
        flow_recheck(f);
    }
}

void box_set_policy(struct box *b, struct policy *policy)
{
    policy_free(b->policy);
    b->policy = policy;
    box_recheck(b);
}

void box_tick(struct box *b)
{
    tell_datagrams(b);
    if (b->tcp && b->tcp->is_resting) {
        b->tcp->is_resting = false;
        (void)uv_poll_start(&b->tcp->poll, UV_READABLE, on_tcp);
    }
}
