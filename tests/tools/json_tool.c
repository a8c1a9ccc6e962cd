/* json_tool.c - our JSON scanner and writer for comparison with another reader (test_json_diff.py).
 *
 * Standard input: records of a mode byte, a length (4 bytes, big endian) and that many bytes. Answers
 * are a byte, a length and bytes:
 *   S  the bytes are JSON by json_scan: answer 1 and nothing, or 0 and the error's text
 *   W  the bytes become a JSON string: answer 1 and the text
 *   U  the bytes are the inside of a checked JSON string: answer 1 and what they say
 */
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"
#include "wire/json.h"
#include "wire/json_lex.h"

#define RECORD_MAX (16u << 20)

static bool answer(uint8_t status, struct slice s)
{
    uint8_t head[5] = { status, (uint8_t)(s.n >> 24), (uint8_t)(s.n >> 16), (uint8_t)(s.n >> 8),
                        (uint8_t)s.n };

    return fwrite(head, 1, sizeof head, stdout) == sizeof head &&
           (s.n == 0 || fwrite(s.p, 1, s.n, stdout) == s.n);
}

static bool serve(uint8_t mode, struct slice s, struct buf *out)
{
    struct rpc_error e = { 0 };
    uint8_t *to;

    buf_reset(out);
    switch (mode) {
    case 'S':
        if (json_scan(s, 64, SIZE_MAX, &e))
            return answer(1, slice_of(NULL, 0));
        return answer(0, slice_str(e.text));
    case 'W':
        return json_string_put(out, s) == BUF_OK && answer(1, buf_slice(out));
    case 'U':
        to = buf_reserve(out, s.n, NULL);
        return to && answer(1, slice_of(to, json_unescape(s, to)));
    default:
        return false;
    }
}

int main(void)
{
    _cleanup_(buf_done) struct buf in = BUF_INIT(RECORD_MAX), out = BUF_INIT(8 * RECORD_MAX);
    uint8_t head[5];

    while (fread(head, 1, sizeof head, stdin) == sizeof head) {
        size_t n = (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 | head[4];
        uint8_t *to;

        buf_reset(&in);
        to = buf_reserve(&in, n, NULL);
        if (!to || fread(to, 1, n, stdin) != n)
            return 1;
        buf_commit(&in, n);
        if (!serve(head[0], buf_slice(&in), &out))
            return 1;
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
