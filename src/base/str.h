/* str.h - text helpers: numbers, UTF-8, hex, base64, percent encoding, time stamps.
 *
 * All take bytes with a length and never read past it. Parsers are strict: the whole input must be
 * the value, nothing is skipped or repaired.
 */
#pragma once

#include "base/buf.h"
#include "base/macro.h"

/* Decimal without sign, leading zeros allowed, 1..20 digits. False if malformed or over `max`. */
bool str_parse_u64(struct slice s, uint64_t max, uint64_t *ret);
/* Decimal with optional '-'. False if malformed or outside [min, max]. */
bool str_parse_i64(struct slice s, int64_t min, int64_t max, int64_t *ret);

/* Well-formed UTF-8 by RFC 3629 (no surrogates, no overlong forms, up to U+10FFFF)? */
bool utf8_is_valid(struct slice s);
/* Bytes of the well-formed sequence at the start of `s`, 0 if there is none. */
size_t utf8_length(struct slice s);
/* Bytes (0..3) at the end of `s` that begin a well-formed sequence whose rest is missing. */
size_t utf8_cut_tail(struct slice s);

/* Lower-case hex of `n` bytes into `to`, which has room for 2n + 1 bytes. */
void hex_encode(const uint8_t *p, size_t n, char *to);
/* Decodes exactly `n` bytes from 2n hex digits of either case; false otherwise. */
bool hex_decode(struct slice s, uint8_t *to, size_t n);

/* RFC 4648 base64. Encoding appends to `b`; `pad` adds '='. Decoding accepts padded and unpadded
 * input, the standard and the URL alphabet, and refuses everything else. */
enum buf_status base64_encode(struct buf *b, struct slice s, bool pad);
enum buf_status base64url_encode(struct buf *b, struct slice s);
bool base64_decode(struct buf *b, struct slice s);

/* Percent-decodes `s` into `b`; `plus` turns '+' into a space (query strings). False when a '%' is
 * not followed by two hex digits, when a NUL would appear, or when `b` is full. */
bool percent_decode(struct buf *b, struct slice s, bool plus);
/* Percent-encodes everything but RFC 3986 unreserved characters. */
enum buf_status percent_encode(struct buf *b, struct slice s);

/* 64-bit FNV-1a of a string, for tables whose keys no stranger chooses: it is not keyed. */
uint64_t str_hash(const char *s);

/* Equal without leaking where they differ (length may leak). */
bool mem_equal_ct(const void *a, const void *b, size_t n);

/* RFC 3339 UTC with milliseconds and 'Z', 24 characters + NUL; `ms` since the epoch. */
#define RFC3339_SIZE 25
void time_format_rfc3339(int64_t ms, char to[RFC3339_SIZE]);
/* Any RFC 3339 time that the calendar has, fraction up to 9 digits, offset or Z. Nanoseconds since the
 * epoch (1678 to 2261), or seconds and the nanoseconds behind them (years 0000 to 9999). */
bool time_parse_rfc3339(struct slice s, int64_t *ret_ns);
bool time_parse_rfc3339_parts(struct slice s, int64_t *ret_s, int32_t *ret_ns);

/* Clocks. */
int64_t time_mono_ns(void);
/* What it will be in `ms` (not negative); INT64_MAX when that is beyond it. */
int64_t time_mono_after_ms(int64_t ms);
int64_t time_wall_ms(void);
