/* supervisor_tls.h - certificates of the service: read here, where files that only root may read can be
 * read, and shared with the gateways (net/tls_share.h), who judge them.
 */
#pragma once

#include "cli/supervisor_listen.h"

#define TLS_FILES_MAX 16

struct tls_share;

struct tls_opts {
    /* Pairs of PEM files; the first is for clients that name none of the others' hosts. */
    const char *certificates[TLS_FILES_MAX], *keys[TLS_FILES_MAX];
    size_t n_certificates, n_keys; /* 0: no TLS */
    struct listen_address listen;
    bool has_listen; /* else the host of the public address and port 8443 */
};

struct supervisor_tls {
    const struct tls_opts *opts;
    struct tls_share *share; /* NULL: no TLS */
    int share_fd;            /* what gateways inherit */
    int listen_fds[LISTEN_GATEWAYS_MAX];
    struct listen_address listen; /* with the port that was chosen */
};

#define SUPERVISOR_TLS_INIT { .share_fd = -EBADF }

/* INVALID_ARGUMENT unless certificates and keys come in pairs. */
int tls_opts_check(const struct tls_opts *opts, struct abx_err *err);
/* Reads the files and opens `n` listeners; nothing happens without certificates. `opts` is borrowed. */
int supervisor_tls_open(struct supervisor_tls *t, const struct tls_opts *opts,
                        const struct listen_address *public_address, size_t n,
                        struct predecessor *predecessor, struct abx_err *err);
/* Reads the files again; when one cannot be read all stays as it was. */
int supervisor_tls_reload(struct supervisor_tls *t, struct abx_err *err);
/* The listeners are the process's until its end. */
void supervisor_tls_done(struct supervisor_tls *t);
