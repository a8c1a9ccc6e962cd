/* supervisor_tls.c - see supervisor_tls.h. */
#include "cli/supervisor_tls.h"

#include <fcntl.h>
#include <string.h>

#include "base/buf.h"
#include "base/fd.h"
#include "net/tls_share.h"

#define DEFAULT_PORT 8443
#define FILE_MAX (256u << 10)

_Static_assert(TLS_FILES_MAX <= TLS_PAIRS_MAX, "all pairs can be shared");

struct file {
    struct buf text;
};

static int read_file(const char *path, struct buf *text, struct abx_err *err)
{
    int r;

    buf_init(text, FILE_MAX);
    r = file_read(AT_FDCWD, path, text, err);
    if (r < 0)
        return r;
    return text->len > 0 ? 0 : err_set(err, ABX_INVALID_ARGUMENT, "'%s' is empty", path);
}

static void files_done(struct file *files, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (files[i].text.len > 0)
            explicit_bzero(buf_data(&files[i].text), files[i].text.len);
        buf_done(&files[i].text);
    }
}

int supervisor_tls_reload(struct supervisor_tls *t, struct abx_err *err)
{
    struct file files[2 * TLS_FILES_MAX] = { 0 };
    struct tls_pair pairs[TLS_FILES_MAX];
    size_t n = t->opts->n_certificates;
    int r = 0;

    for (size_t i = 0; r == 0 && i < n; i++) {
        struct buf *certificate = &files[2 * i].text, *key = &files[2 * i + 1].text;

        r = read_file(t->opts->certificates[i], certificate, err);
        if (r == 0)
            r = read_file(t->opts->keys[i], key, err);
        pairs[i] = (struct tls_pair){ buf_slice(certificate), buf_slice(key) };
    }
    if (r == 0)
        r = tls_share_write(t->share, pairs, n, err);
    files_done(files, 2 * n);
    return r;
}

int tls_opts_check(const struct tls_opts *opts, struct abx_err *err)
{
    if (opts->n_certificates != opts->n_keys)
        return err_set(err, ABX_INVALID_ARGUMENT,
                       "--tls-cert (%zu) and --tls-key (%zu) have to come in pairs",
                       opts->n_certificates, opts->n_keys);
    if (opts->has_listen && opts->n_certificates == 0)
        return err_set(err, ABX_INVALID_ARGUMENT, "--tls-listen needs --tls-cert and --tls-key");
    return 0;
}

int supervisor_tls_open(struct supervisor_tls *t, const struct tls_opts *opts,
                        const struct listen_address *public_address, size_t n,
                        struct predecessor *predecessor, struct abx_err *err)
{
    int r;

    t->opts = opts;
    if (opts->n_certificates == 0)
        return 0;
    t->listen = opts->has_listen ? opts->listen : *public_address;
    if (!opts->has_listen)
        t->listen.port = DEFAULT_PORT;
    r = tls_share_new(&t->share, &t->share_fd, err);
    if (r == 0)
        r = supervisor_tls_reload(t, err);
    return r < 0 ? r : listen_shared(&t->listen, n, predecessor, t->listen_fds, err);
}

void supervisor_tls_done(struct supervisor_tls *t)
{
    tls_share_free(TAKE_PTR(t->share));
    fd_close(t->share_fd);
}
