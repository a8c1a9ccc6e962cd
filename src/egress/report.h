/* report.h - what a sandbox says of its processes, made lines of its logs.
 *
 * The guest's daemon sends datagrams (GuestReport in schema/ipc.proto) to a socket in the sandbox's network namespace, and so may
 * anybody who is root there; what others send is left unread. So the lines are the sandbox's word, say so (`origin` is
 * "sandbox"), and have limits: of texts, of lines a second, and of looks, so that a sandbox that sends without end
 * costs no more than a few calls a second. What is left out is counted, and the count is a line.
 */
#pragma once

#include "base/err.h"
#include "schema/ipc.pb-c.h"

#define REPORT_BURST 200u
#define REPORT_PER_SECOND 10u

struct box;
struct reports;

/* Takes the socket. `root_uid`: of the sandbox, as its messages carry it. NULL when out of memory. */
struct reports *reports_new(struct box *b, int fd, uid_t root_uid);
/* What has come still becomes lines. NULL is fine. */
void reports_close(struct reports *r);

#define REPORT_MESSAGE_MAX 512u
#define REPORT_ARGS_TEXT_MAX 500u
#define REPORT_PAIRS 18u /* places of report_line's pairs, with the NULL at the end */

struct report_text {
    char message[REPORT_MESSAGE_MAX], args[REPORT_ARGS_TEXT_MAX], numbers[3][24];
    const char *pairs[REPORT_PAIRS]; /* as box_tell takes them */
};

/* What the sandbox said as a line: pointers in `ret` lead into it and `line`. */
void report_line(const Abx__Ipc__ProcessLine *line, struct report_text *ret);
