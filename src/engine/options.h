/* options.h - the command line of abx-engine; the supervisor writes it, people rarely do. */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "engine/job.h"
#include "engine/record.h"
#include "engine/spawn.h"

#define OPTIONS_POOLS_MAX 32

/* Descriptors that a process of the engine may have at least, or it does not start. */
#define ENGINE_FDS_MIN 1024u

struct pool_option {
    char template[RECORD_TEMPLATE_SIZE];
    unsigned n;
};

enum on_exit { ON_EXIT_BY_SIGNAL, ON_EXIT_KEEP, ON_EXIT_KILL };

struct options {
    const char *data_dir; /* absolute; borrowed from argv like all texts here */
    const char *run_dir;
    const char *instance;
    const char *guest;
    const char *templates;
    const char *uid_leases;
    struct pool_option pools[OPTIONS_POOLS_MAX];
    size_t n_pools;
    uint64_t disk_bytes; /* of the pool's image, 0 = by what is free */
    struct record_limits defaults, max;
    unsigned slots;                         /* prepared ahead */
    unsigned workers;                       /* that create */
    int control_fd, gateway_fd, egress_fd;  /* -1: none */
    int heartbeat_fd, sockets_heartbeat_fd; /* the same */
    uid_t control_uid, gateway_uid, egress_uid;
    enum on_exit on_exit;
    enum mount_path mount_path;
    bool is_worker;
    enum worker_class worker;
};

extern const char options_usage[];

/* Fills `ret`; INVALID_ARGUMENT names the option. `is_help` set: nothing else is checked. */
int options_parse(int argc, char *const *argv, struct options *ret, bool *ret_is_help,
                  struct abx_err *err);
