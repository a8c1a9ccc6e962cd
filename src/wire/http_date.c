/* http_date.c - see http_date.h. */
#include "wire/http_date.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

static const char days[] = "SunMonTueWedThuFriSat";
static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

void http_date_format(time_t t, char to[HTTP_DATE_SIZE])
{
    struct tm tm;

    to[0] = '\0';
    if (!gmtime_r(&t, &tm) || tm.tm_year < -1900 || tm.tm_year > 9999 - 1900)
        return;
    (void)snprintf(to, HTTP_DATE_SIZE, "%.3s, %02u %.3s %04u %02u:%02u:%02u GMT",
                   days + 3 * (size_t)tm.tm_wday, (unsigned)tm.tm_mday % 100,
                   months + 3 * (size_t)tm.tm_mon, ((unsigned)tm.tm_year + 1900) % 10000,
                   (unsigned)tm.tm_hour % 100, (unsigned)tm.tm_min % 100,
                   (unsigned)tm.tm_sec % 100);
}

/* Two or four digits at `at`, -1 when something else is there. */
static int number(struct slice s, size_t at, size_t n)
{
    uint64_t v;

    return str_parse_u64(slice_of(s.p + at, n), 9999, &v) ? (int)v : -1;
}

bool http_date_parse(struct slice s, time_t *ret)
{
    char again[HTTP_DATE_SIZE];
    struct tm tm = { .tm_mon = -1 };
    time_t t;

    if (s.n != HTTP_DATE_SIZE - 1)
        return false;
    for (int i = 0; i < 12; i++)
        if (memcmp(s.p + 8, months + 3 * (size_t)i, 3) == 0)
            tm.tm_mon = i;
    tm.tm_mday = number(s, 5, 2);
    tm.tm_year = number(s, 12, 4) - 1900;
    tm.tm_hour = number(s, 17, 2);
    tm.tm_min = number(s, 20, 2);
    tm.tm_sec = number(s, 23, 2);
    if (tm.tm_mon < 0)
        return false;
    t = timegm(&tm);
    http_date_format(t, again); /* also sees separators, wrong days and what timegm normalized */
    if (!slice_eq_str(s, again))
        return false;
    *ret = t;
    return true;
}
