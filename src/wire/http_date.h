/* http_date.h - dates of HTTP fields: IMF-fixdate (RFC 9110 5.6.7), the only form that is written and taken. No
 * locale has a say.
 */
#pragma once

#include <time.h>

#include "base/buf.h"

#define HTTP_DATE_SIZE 30 /* with its NUL */

/* "Sun, 06 Nov 1994 08:49:37 GMT"; "" for a time whose year has not four digits. */
void http_date_format(time_t t, char to[HTTP_DATE_SIZE]);
/* False for any other form, for days that do not exist and for a wrong day of the week. */
bool http_date_parse(struct slice s, time_t *ret);
