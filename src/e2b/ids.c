/* ids.c - see ids.h. */
#include "e2b/ids.h"

#include "base/fd.h"
#include "base/str.h"

#define OWN_CHARS 20

void id_random(char *to, size_t n)
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    uint8_t raw[32];
    size_t have = 0;

    for (size_t i = 0; i < n;) {
        if (have == 0) {
            random_bytes(raw, sizeof raw);
            have = sizeof raw;
        }
        have--;
        /* 252 = 7 * 36: what lies above would make the first characters likelier. */
        if (raw[have] < 252)
            to[i++] = alphabet[raw[have] % 36];
    }
    to[n] = '\0';
}

void sandbox_id_new(char to[SANDBOX_ID_SIZE])
{
    to[0] = 'i';
    id_random(to + 1, OWN_CHARS);
}

bool sandbox_id_parse(struct slice s, char to[SANDBOX_ID_SIZE])
{
    size_t n = 0;

    while (n < s.n && s.p[n] != '-') {
        uint8_t c = s.p[n];

        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')))
            return false;
        n++;
    }
    if (n == 0 || n > SANDBOX_ID_MAX)
        return false;
    memcpy(to, s.p, n);
    to[n] = '\0';
    return true;
}

void uuid_new(char to[UUID_SIZE])
{
    uint8_t raw[16];
    char hex[33];

    random_bytes(raw, sizeof raw);
    raw[6] = (uint8_t)((raw[6] & 0x0f) | 0x40);
    raw[8] = (uint8_t)((raw[8] & 0x3f) | 0x80);
    hex_encode(raw, sizeof raw, hex);
    for (size_t i = 0, o = 0; i < 32; i++) {
        if (i == 8 || i == 12 || i == 16 || i == 20)
            to[o++] = '-';
        to[o++] = hex[i];
    }
    to[UUID_SIZE - 1] = '\0';
}

bool uuid_is_valid(struct slice s)
{
    if (s.n != UUID_SIZE - 1)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        uint8_t c = s.p[i];
        bool is_hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');

        if (i == 8 || i == 13 || i == 18 || i == 23 ? c != '-' : !is_hex)
            return false;
    }
    return true;
}
