/* fuzz_proxy.c - what proxies answer, to both kinds of talk; and addresses of proxies. */
#include "egress/proxy.h"
#include "fuzz.h"

static void talk(const char *url, struct slice in)
{
    struct buf out = BUF_INIT(4096);
    char why[PROXY_WHY_SIZE];
    struct proxy p;
    struct proxy_talk t = { .proxy = &p };
    enum proxy_step s;
    size_t used;

    FUZZ_CHECK(proxy_parse(url, PROXY_SOCKS5, &p) && address_parse("1.2.3.4:443", 0, &t.to));
    for (int i = 0; i < 8; i++) {
        uint8_t *copy = fuzz_exact(in);

        s = proxy_next(&t, slice_of(copy, i == 0 ? 0 : in.n), &used, &out, why);
        free(copy);
        FUZZ_CHECK(used <= in.n && memchr(why, 0, sizeof(why)) != NULL);
        in = slice_of(in.p + used, in.n - used);
        if (s != PROXY_SEND)
            break;
    }
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size);
    struct proxy p;

    FUZZ_CHECK(text != NULL);
    if (proxy_parse(text, PROXY_HTTP, &p))
        FUZZ_CHECK(p.port > 0 && p.host[0] != 0);
    free(text);
    talk("http://me:pw@h:1", slice_of(data, size));
    talk("socks5://me:pw@h:1", slice_of(data, size));
    talk("socks5://h:1", slice_of(data, size));
    return 0;
}
