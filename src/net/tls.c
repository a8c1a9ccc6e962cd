/* tls.c - see tls.h. */
#include "net/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#define RECORD_MAX 16384u
#define CIPHERS_1_2 "ECDHE+AESGCM:ECDHE+CHACHA20"
#define TICKET_NAME_SIZE 16
#define TICKET_KEY_SIZE 32
#define PASSWORD_NONE ((void *)(uintptr_t)"") /* or OpenSSL would ask for one on the terminal */

struct tls_server {
    SSL_CTX *contexts[TLS_PAIRS_MAX];
    X509 *certificates[TLS_PAIRS_MAX]; /* borrowed from their contexts */
    size_t n;
    bool has_h2;
    uint8_t secret[TLS_SECRET_SIZE];
};

struct tls_layer {
    struct sock_layer layer;
    SSL *ssl;
    int fd;
    bool is_server;
    bool is_eof, is_broken, is_shut;
};

/* --- connections ------------------------------------------------------------------------------- */

/* Somebody speaks HTTP to a port that has TLS: the usual reason is a URL with http://. */
static void tell_plain_http(const struct tls_layer *t)
{
    static const char answer[] =
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 64\r\n"
        "Connection: close\r\n\r\n"
        "{\"code\":400,\"message\":\"This port speaks TLS: use https:// URLs\"}";
    char scratch[4096];

    _Static_assert(
        sizeof("{\"code\":400,\"message\":\"This port speaks TLS: use https:// URLs\"}") - 1 == 64,
        "Content-Length above");
    /* What is left unread would make the kernel reset the connection, and the answer with it. */
    for (int i = 0; i < 4 && recv(t->fd, scratch, sizeof(scratch), MSG_DONTWAIT) > 0; i++)
        ;
    (void)send(t->fd, answer, sizeof(answer) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* After a call that gave no byte: 0 = end, -EAGAIN, or another -errno when it is broken. */
static ssize_t call_failed(struct tls_layer *t, int result)
{
    switch (SSL_get_error(t->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return -EAGAIN;
    case SSL_ERROR_WANT_WRITE:
        t->layer.read_wants_write = true;
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        t->is_eof = true;
        return 0;
    default:
        break;
    }
    if (t->is_server && !t->layer.is_ready &&
        ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST)
        tell_plain_http(t);
    ERR_clear_error();
    t->is_broken = true;
    /* A client whose handshake failed has been told why; a reset could overtake that. */
    return t->layer.is_ready || !t->is_server ? -ECONNRESET : 0;
}

static void look_at_handshake(struct tls_layer *t)
{
    const unsigned char *protocol = NULL;
    unsigned n = 0;

    if (t->layer.is_ready || !SSL_is_init_finished(t->ssl))
        return;
    t->layer.is_ready = true;
    SSL_get0_alpn_selected(t->ssl, &protocol, &n);
    t->layer.chose_h2 = n == 2 && memcmp(protocol, "h2", 2) == 0;
}

static ssize_t layer_read(struct sock_layer *l, uint8_t *to, size_t n)
{
    struct tls_layer *t = container_of(l, struct tls_layer, layer);
    size_t have = 0;
    ssize_t r = 0;

    l->read_wants_write = false;
    if (t->is_broken)
        return -ECONNRESET;
    if (t->is_eof)
        return 0;
    ERR_clear_error();
    while (have < n) {
        int got = SSL_read(t->ssl, to + have, (int)MIN(n - have, (size_t)INT_MAX));

        look_at_handshake(t);
        if (got <= 0) {
            r = call_failed(t, got);
            break;
        }
        have += (size_t)got;
    }
    /* What comes next may lie in the layer, the descriptor need not show it. */
    l->has_more = have > 0 && (t->is_eof || t->is_broken || SSL_has_pending(t->ssl));
    return have > 0 ? (ssize_t)have : r;
}

static ssize_t layer_write(struct sock_layer *l, struct slice s)
{
    struct tls_layer *t = container_of(l, struct tls_layer, layer);
    bool read_wants_write = l->read_wants_write;
    ssize_t r;
    int n;

    if (t->is_broken || t->is_shut)
        return -EPIPE;
    ERR_clear_error();
    n = SSL_write(t->ssl, s.p, (int)MIN(s.n, (size_t)RECORD_MAX));
    look_at_handshake(t);
    if (n > 0)
        return n;
    /* What came before the other side closed the connection can still be read. */
    if (SSL_get_error(t->ssl, n) == SSL_ERROR_SYSCALL) {
        t->is_shut = true;
        return -EPIPE;
    }
    r = call_failed(t, n);
    l->read_wants_write = read_wants_write;
    return r == -EAGAIN ? r : -EPIPE;
}

static void layer_shutdown(struct sock_layer *l)
{
    struct tls_layer *t = container_of(l, struct tls_layer, layer);

    if (t->is_broken || t->is_shut || !l->is_ready)
        return;
    t->is_shut = true;
    ERR_clear_error();
    (void)SSL_shutdown(t->ssl);
    ERR_clear_error();
}

static void layer_free(struct sock_layer *l)
{
    struct tls_layer *t = container_of(l, struct tls_layer, layer);

    SSL_free(t->ssl);
    free(t);
}

static const struct sock_layer_ops layer_ops = { layer_read, layer_write, layer_shutdown,
                                                 layer_free };

static struct sock_layer *layer_new(SSL_CTX *context, int fd, bool is_server)
{
    struct tls_layer *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->layer.ops = &layer_ops;
    t->fd = fd;
    t->is_server = is_server;
    t->ssl = SSL_new(context);
    if (!t->ssl || SSL_set_fd(t->ssl, fd) != 1) {
        ERR_clear_error();
        SSL_free(t->ssl);
        free(t);
        return NULL;
    }
    if (is_server)
        SSL_set_accept_state(t->ssl);
    else
        SSL_set_connect_state(t->ssl);
    return &t->layer;
}

struct sock_layer *tls_server_open(void *tls_server, int fd)
{
    struct tls_server *t = tls_server;

    return t->n > 0 ? layer_new(t->contexts[0], fd, true) : NULL;
}

struct sock_layer *tls_client_open(int fd, const char *host)
{
    static const unsigned char alpn[] = "\x08http/1.1";
    static SSL_CTX *context; /* one for the process, never freed */
    struct sock_layer *layer;

    if (!context) {
        /* As for the server: no configuration of the machine. */
        if (OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) != 1)
            return NULL;
        context = SSL_CTX_new(TLS_client_method());
        if (!context)
            return NULL;
        SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
        (void)SSL_CTX_set_alpn_protos(context, alpn, sizeof(alpn) - 1);
        SSL_CTX_set_read_ahead(context, 1);
        (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
        /* Many small servers close without saying so in TLS; nobody between us and them could cut. */
        (void)SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
        (void)SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                            SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    }
    layer = layer_new(context, fd, false);
    if (layer && *host &&
        SSL_set_tlsext_host_name(container_of(layer, struct tls_layer, layer)->ssl, host) != 1) {
        layer_free(layer);
        return NULL;
    }
    return layer;
}

/* --- trust ------------------------------------------------------------------------------------- */

struct tls_trust {
    SSL_CTX *context;
    unsigned n_refs;
};

static int add_authorities(X509_STORE *store, struct slice pem, struct abx_err *err)
{
    BIO *bio = BIO_new_mem_buf(pem.p, (int)MIN(pem.n, (size_t)INT_MAX));
    size_t n = 0;
    X509 *x;
    int r = 0;

    while (bio && r == 0 && (x = PEM_read_bio_X509(bio, NULL, NULL, PASSWORD_NONE)) != NULL) {
        if (X509_STORE_add_cert(store, x) != 1)
            r = err_set(err, ABX_INVALID_ARGUMENT, "certificate %zu cannot be used", n + 1);
        X509_free(x);
        n++;
    }
    if (r == 0 && (n == 0 || ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE))
        r = err_set(err, ABX_INVALID_ARGUMENT, "certificate %zu cannot be read", n + 1);
    ERR_clear_error();
    (void)BIO_free(bio);
    return r;
}

int tls_trust_new(struct slice pem, struct tls_trust **ret, struct abx_err *err)
{
    struct tls_trust *t = calloc(1, sizeof(*t));
    int r;

    if (!t || OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) != 1 ||
        !(t->context = SSL_CTX_new(TLS_client_method()))) {
        free(t);
        return err_oom(err);
    }
    t->n_refs = 1;
    (void)SSL_CTX_set_min_proto_version(t->context, TLS1_2_VERSION);
    (void)SSL_CTX_set_options(t->context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    (void)SSL_CTX_set_mode(t->context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                           SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    (void)SSL_CTX_set_session_cache_mode(t->context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_read_ahead(t->context, 1);
    SSL_CTX_set_verify(t->context, SSL_VERIFY_PEER, NULL);
    /* One that is given may stand for itself, or be in the middle of a chain. */
    (void)X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(t->context), X509_V_FLAG_PARTIAL_CHAIN);
    r = add_authorities(SSL_CTX_get_cert_store(t->context), pem, err);
    if (r < 0) {
        tls_trust_unref(t);
        return r;
    }
    *ret = t;
    return 0;
}

struct tls_trust *tls_trust_ref(struct tls_trust *t)
{
    t->n_refs++;
    return t;
}

void tls_trust_unref(struct tls_trust *t)
{
    if (!t || --t->n_refs > 0)
        return;
    SSL_CTX_free(t->context);
    free(t);
}

struct sock_layer *tls_trusting_open(struct tls_trust *t, int fd, const char *host)
{
    struct sock_layer *layer = layer_new(t->context, fd, false);
    struct in6_addr address;
    bool is_address =
        inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
    SSL *ssl;
    bool ok;

    if (!layer)
        return NULL;
    ssl = container_of(layer, struct tls_layer, layer)->ssl;
    ok = is_address ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1
                    : SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
    if (ok)
        return layer;
    layer_free(layer);
    return NULL;
}

const char *tls_distrust(struct sock_layer *l)
{
    const struct tls_layer *t = container_of(l, struct tls_layer, layer);
    long result = SSL_get_verify_result(t->ssl);

    return result == X509_V_OK ? NULL : X509_verify_cert_error_string(result);
}

/* --- certificates ------------------------------------------------------------------------------ */

static int ssl_error(struct abx_err *err, size_t pair, const char *what)
{
    unsigned long code = ERR_peek_last_error();
    const char *why = code ? ERR_reason_error_string(code) : NULL;

    (void)err_set(err, ABX_INVALID_ARGUMENT, "certificate %zu: %s: %s", pair + 1, what,
                  why ? why : "not valid");
    ERR_clear_error();
    return ABX_INVALID_ARGUMENT;
}

/* The first certificate is the server's, the others are its chain. */
static int use_certificate(SSL_CTX *context, struct slice pem, size_t pair, X509 **ret,
                           struct abx_err *err)
{
    BIO *bio = BIO_new_mem_buf(pem.p, (int)MIN(pem.n, (size_t)INT_MAX));
    X509 *x = bio ? PEM_read_bio_X509_AUX(bio, NULL, NULL, PASSWORD_NONE) : NULL;
    int r = 0;

    if (!x || SSL_CTX_use_certificate(context, x) != 1) {
        r = ssl_error(err, pair, "its certificate cannot be used");
    } else {
        X509 *more;

        *ret = SSL_CTX_get0_certificate(context);
        while (r == 0 && (more = PEM_read_bio_X509(bio, NULL, NULL, PASSWORD_NONE)) != NULL) {
            if (SSL_CTX_add0_chain_cert(context, more) != 1) {
                X509_free(more);
                r = ssl_error(err, pair, "its chain cannot be used");
            }
        }
        if (r == 0 && ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
            r = ssl_error(err, pair, "its chain cannot be read");
        ERR_clear_error(); /* the end of the file */
    }
    X509_free(x);
    (void)BIO_free(bio);
    return r;
}

static int use_key(SSL_CTX *context, struct slice pem, size_t pair, struct abx_err *err)
{
    BIO *bio = BIO_new_mem_buf(pem.p, (int)MIN(pem.n, (size_t)INT_MAX));
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, PASSWORD_NONE) : NULL;
    int r = 0;

    if (!key)
        r = ssl_error(err, pair, "its key cannot be read (one with a password cannot be used)");
    else if (SSL_CTX_use_PrivateKey(context, key) != 1 || SSL_CTX_check_private_key(context) != 1)
        r = ssl_error(err, pair, "its key does not belong to the certificate");
    EVP_PKEY_free(key);
    (void)BIO_free(bio);
    return r;
}

static int choose_protocol(SSL *ssl, const unsigned char **ret, unsigned char *ret_n,
                           const unsigned char *offered, unsigned n, void *user)
{
    static const unsigned char with_h2[] = "\x02h2\x08http/1.1";
    const struct tls_server *t = user;
    const unsigned char *ours = t->has_h2 ? with_h2 : with_h2 + 3;
    unsigned n_ours = sizeof(with_h2) - 1 - (t->has_h2 ? 0 : 3);
    unsigned char *chosen = NULL;

    (void)ssl;
    if (SSL_select_next_proto(&chosen, ret_n, ours, n_ours, offered, n) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *ret = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static int choose_certificate(SSL *ssl, int *alert, void *user)
{
    const struct tls_server *t = user;
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);

    (void)alert;
    for (size_t i = 0; name && i < t->n; i++) {
        if (X509_check_host(t->certificates[i], name, 0, 0, NULL) != 1)
            continue;
        return SSL_set_SSL_CTX(ssl, t->contexts[i]) ? SSL_TLSEXT_ERR_OK
                                                    : SSL_TLSEXT_ERR_ALERT_FATAL;
    }
    return SSL_TLSEXT_ERR_OK;
}

/* Keys of the period that began `ago` periods before the present one. */
struct ticket_keys {
    uint8_t name[TICKET_NAME_SIZE];
    uint8_t cipher[TICKET_KEY_SIZE], mac[TICKET_KEY_SIZE];
};

static bool make_ticket_keys(const struct tls_server *t, int64_t ago, struct ticket_keys *ret)
{
    int64_t period = (int64_t)time(NULL) / TLS_TICKET_PERIOD_S - ago;
    uint8_t *parts[] = { ret->name, ret->cipher, ret->mac };
    const size_t sizes[] = { sizeof(ret->name), sizeof(ret->cipher), sizeof(ret->mac) };

    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        uint8_t text[sizeof(period) + 1], digest[EVP_MAX_MD_SIZE];

        memcpy(text, &period, sizeof(period));
        text[sizeof(period)] = (uint8_t)i;
        if (!HMAC(EVP_sha256(), t->secret, (int)sizeof(t->secret), text, sizeof(text), digest,
                  NULL))
            return false;
        memcpy(parts[i], digest, sizes[i]);
    }
    return true;
}

static bool set_ticket_mac(EVP_MAC_CTX *mac, struct ticket_keys *keys)
{
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, keys->mac, sizeof(keys->mac)),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end(),
    };

    return EVP_MAC_CTX_set_params(mac, params) == 1;
}

/* SSL_CTX_set_tlsext_ticket_key_evp_cb(3): 1 = go on, 2 = and give a new ticket, 0 = no session. */
static int ticket_key(SSL *ssl, unsigned char name[TICKET_NAME_SIZE], unsigned char *iv,
                      EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac, int is_new)
{
    const struct tls_server *t = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    struct ticket_keys keys;

    if (is_new) {
        if (!make_ticket_keys(t, 0, &keys) || RAND_bytes(iv, EVP_MAX_IV_LENGTH) != 1)
            return -1;
        memcpy(name, keys.name, sizeof(keys.name));
        return EVP_EncryptInit_ex(cipher, EVP_aes_256_cbc(), NULL, keys.cipher, iv) == 1 &&
                       set_ticket_mac(mac, &keys)
                   ? 1
                   : -1;
    }
    for (int ago = 0; ago < 2; ago++) {
        if (!make_ticket_keys(t, ago, &keys))
            return -1;
        if (CRYPTO_memcmp(name, keys.name, sizeof(keys.name)) != 0)
            continue;
        if (EVP_DecryptInit_ex(cipher, EVP_aes_256_cbc(), NULL, keys.cipher, iv) != 1 ||
            !set_ticket_mac(mac, &keys))
            return -1;
        return ago == 0 ? 1 : 2;
    }
    return 0;
}

static int context_new(struct tls_server *t, const struct tls_pair *pair, size_t i, SSL_CTX **ret,
                       X509 **ret_certificate, struct abx_err *err)
{
    static const unsigned char session_id[] = "abx";
    SSL_CTX *c = SSL_CTX_new(TLS_server_method());
    int r = 0;

    if (!c)
        return err_oom(err);
    (void)SSL_CTX_set_app_data(c, t);
    (void)SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
    (void)SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    (void)SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(c, 1); /* or each record would be two reads */
    (void)SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_session_id_context(c, session_id, sizeof(session_id) - 1);
    (void)SSL_CTX_set_num_tickets(c, 1);
    (void)SSL_CTX_set_timeout(c, TLS_TICKET_PERIOD_S);
    (void)SSL_CTX_set_tlsext_ticket_key_evp_cb(c, ticket_key);
    (void)SSL_CTX_set_tlsext_servername_callback(c, choose_certificate);
    (void)SSL_CTX_set_tlsext_servername_arg(c, t);
    SSL_CTX_set_alpn_select_cb(c, choose_protocol, t);
    if (SSL_CTX_set_cipher_list(c, CIPHERS_1_2) != 1)
        r = ssl_error(err, i, "no cipher can be used");
    if (r == 0)
        r = use_certificate(c, pair->certificate, i, ret_certificate, err);
    if (r == 0)
        r = use_key(c, pair->key, i, err);
    if (r < 0) {
        SSL_CTX_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

static void free_contexts(SSL_CTX **contexts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        SSL_CTX_free(contexts[i]);
}

int tls_server_load(struct tls_server *t, const struct tls_pair *pairs, size_t n,
                    const uint8_t secret[TLS_SECRET_SIZE], struct abx_err *err)
{
    SSL_CTX *contexts[TLS_PAIRS_MAX] = { NULL };
    X509 *certificates[TLS_PAIRS_MAX] = { NULL };

    if (n == 0 || n > TLS_PAIRS_MAX)
        return err_set(err, ABX_INVALID_ARGUMENT, "from 1 to %u certificates can be used, not %zu",
                       TLS_PAIRS_MAX, n);
    for (size_t i = 0; i < n; i++) {
        int r = context_new(t, &pairs[i], i, &contexts[i], &certificates[i], err);

        if (r < 0) {
            free_contexts(contexts, i);
            return r;
        }
    }
    free_contexts(t->contexts, t->n); /* connections keep their own */
    memcpy(t->contexts, contexts, sizeof(contexts));
    memcpy(t->certificates, certificates, sizeof(certificates));
    memcpy(t->secret, secret, sizeof(t->secret));
    t->n = n;
    return 0;
}

int tls_server_new(bool has_h2, struct tls_server **ret, struct abx_err *err)
{
    struct tls_server *t = calloc(1, sizeof(*t));

    /* Neither a configuration file nor modules of the machine: the role sees no files. */
    if (!t || OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) != 1) {
        free(t);
        return err_oom(err);
    }
    t->has_h2 = has_h2;
    *ret = t;
    return 0;
}

void tls_server_free(struct tls_server *t)
{
    if (!t)
        return;
    free_contexts(t->contexts, t->n);
    OPENSSL_cleanse(t->secret, sizeof(t->secret));
    free(t);
}
