/* worker_audit.c - looks for what no record accounts for. See worker.h.
 *
 * First the things are listed, then it is asked whether each has a record. A record is written
 * before any of its things and removed after all of them, so something without a record is not
 * under construction. Only uid ranges can look ownerless for a moment; the engine therefore trusts
 * what two audits in a row found.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "engine/netns.h"
#include "engine/worker_internal.h"

struct audit {
    struct worker *w;
    struct job_result *ret;
    enum finding_kind kind; /* of what is being listed */
    struct names {
        char (*list)[RECORD_ID_SIZE];
        size_t n;
    } names[2]; /* FINDING_CGROUP, FINDING_UPPER */
};

static void add_finding(struct audit *a, enum finding_kind kind, const char *name, uint32_t number)
{
    uint32_t n = a->ret->u.audit.n;
    struct finding *f = &a->ret->u.audit.list[n];

    if (n == JOB_FINDINGS_MAX) {
        a->ret->u.audit.has_more = true;
        return;
    }
    f->kind = kind;
    f->number = number;
    (void)snprintf(f->name, sizeof f->name, "%s", name);
    a->ret->u.audit.n = n + 1;
}

static int note_name(void *user, const char *name)
{
    struct audit *a = user;
    struct names *names = &a->names[a->kind];
    char(*more)[RECORD_ID_SIZE] = reallocarray(names->list, names->n + 1, sizeof *more);

    if (!more)
        return ABX_RESOURCE_EXHAUSTED;
    names->list = more;
    (void)snprintf(more[names->n++], sizeof *more, "%s", name);
    return 0;
}

static bool has_record(struct worker *w, const char *name)
{
    return faccessat(w->records_fd, name, F_OK, 0) == 0;
}

static int audit_names(struct audit *a, struct abx_err *err)
{
    int r;

    a->kind = FINDING_CGROUP;
    r = cgroup_each(a->w->cgroups, note_name, a, err);
    if (r < 0)
        return r;
    a->kind = FINDING_UPPER;
    r = disk_upper_each(a->w->pool, note_name, a, err);
    if (r < 0)
        return r;
    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < a->names[kind].n; i++)
            if (!has_record(a->w, a->names[kind].list[i]) &&
                (kind != FINDING_UPPER || !saved_has(a->w->pool, a->names[kind].list[i])))
                add_finding(a, (enum finding_kind)kind, a->names[kind].list[i], 0);
    return 0;
}

/* --- uid ranges, processes and network namespaces ------------------------------------------------------------------- */

struct used {
    struct worker *w;
    struct used_item {
        uid_t base;
        uint64_t netns_ino;
    } *list;
    size_t n;
};

static int note_used(void *user, const char *name)
{
    struct used *u = user;
    struct record r;
    struct used_item *more;

    if (record_read(u->w->records_fd, name, &r, NULL) < 0)
        return 0;
    more = reallocarray(u->list, u->n + 1, sizeof *more);
    if (!more)
        return ABX_RESOURCE_EXHAUSTED;
    u->list = more;
    more[u->n++] = (struct used_item){ r.uid_base, r.netns_ino };
    return 0;
}

static bool is_used(const struct used *u, uid_t base)
{
    for (size_t i = 0; i < u->n; i++)
        if (u->list[i].base == base)
            return true;
    return false;
}

static bool is_ours(const struct worker *w, uid_t base)
{
    for (size_t i = 0; i < w->n_leases; i++)
        if (w->leases[i].base == base)
            return true;
    return false;
}

/* Real uid by /proc/<pid>/status (the owner of the folder is root for what cannot be dumped). False
 * also for zombies: they hold nothing, and reaping them is their parent's business. */
static bool process_uid(int procfd, const char *pid, uid_t *ret)
{
    char text[PROCESS_STATUS_HEAD];
    const char *p, *end;
    uint64_t uid;

    if (process_status_head(procfd, pid, text) < 0 || strstr(text, "\nState:\tZ"))
        return false;
    p = strstr(text, "\nUid:\t");
    end = p ? strchr(p + 6, '\t') : NULL;
    if (!end || !str_parse_u64(slice_of(p + 6, (size_t)(end - p - 6)), UINT32_MAX, &uid))
        return false;
    *ret = (uid_t)uid;
    return true;
}

static int audit_processes(struct audit *a, const struct used *u, struct abx_err *err)
{
    _cleanup_(closedirp) DIR *d = opendir("/proc");
    struct dirent *e;

    if (!d)
        return err_sys(err, errno, "open /proc");
    while ((errno = 0, e = readdir(d)) != NULL) {
        uint64_t pid;
        uid_t uid, base;

        if (!str_parse_u64(slice_str(e->d_name), INT32_MAX, &pid) ||
            !process_uid(dirfd(d), e->d_name, &uid))
            continue;
        if (uid < UID_RANGE_FIRST || uid > UID_RANGE_LAST)
            continue;
        base = uid - (uid - UID_RANGE_FIRST) % UID_RANGE_SIZE;
        if (is_ours(a->w, base) && !is_used(u, base))
            add_finding(a, FINDING_PROCESS, "", (uint32_t)pid);
    }
    return errno ? err_sys(err, errno, "read /proc") : 0;
}

struct holder {
    struct audit *a;
    const struct used *used;
    pid_t pid;
};

static int note_held(void *user, int fd, int netns_fd, ino_t inode)
{
    struct holder *h = user;
    struct job_result *ret = h->a->ret;
    uint32_t n = ret->u.audit.n;

    for (size_t i = 0; i < h->used->n; i++)
        if (h->used->list[i].netns_ino == inode)
            return 0;
    /* The operator may have given us sockets of another namespace to listen on. */
    if (!netns_is_ours(netns_fd))
        return 0;
    add_finding(h->a, FINDING_NETNS, "", (uint32_t)h->pid);
    if (ret->u.audit.n > n) {
        ret->u.audit.list[n].netns = (uint32_t)inode;
        ret->u.audit.list[n].fd = fd;
    }
    return 0;
}

/* A namespace whose processes are gone lives on in a socket that a gateway, or a handle that one of us,
 * forgot. Its record said which it is from before anyone else could have a descriptor of it. */
static int audit_netns(struct audit *a, const struct job_audit *j, const struct used *u,
                       struct abx_err *err)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < j->n && i < JOB_HOLDERS_MAX; i++) {
        struct holder h = { a, u, j->holders[i] };

        r = netns_each_held(h.pid, note_held, &h, err);
    }
    return r;
}

static int audit_used(struct audit *a, const struct job_audit *j, struct abx_err *err)
{
    struct used u = { a->w, NULL, 0 };
    int r = record_each(a->w->records_fd, note_used, &u, err);

    for (size_t i = 0; r == 0 && i < a->w->n_leases; i++)
        if (!a->w->leases[i].is_free && !is_used(&u, a->w->leases[i].base))
            add_finding(a, FINDING_UIDS, "", (uint32_t)a->w->leases[i].base);
    if (r == 0)
        r = audit_processes(a, &u, err);
    if (r == 0)
        r = audit_netns(a, j, &u, err);
    free(u.list);
    return r;
}

int job_audit_run(struct worker *w, const struct job *j, struct job_result *ret)
{
    struct audit a = { .w = w, .ret = ret };
    int r = audit_names(&a, &ret->err);

    if (r == 0)
        r = audit_used(&a, &j->audit, &ret->err);
    free(a.names[0].list);
    free(a.names[1].list);
    return r;
}
