/* apt_sources.h - the machine's apt entries, and which of them are the distribution's own archive.
 *
 * Reads both forms of sources.list(5): one-line (*.list) and deb822 (*.sources). Nothing here uses
 * the network: apt_source_suffix only sorts out what cannot be the archive, by suite, component,
 * architecture and named key; that the rest is signed by the archive's key is checked by the caller
 * before anything is taken from it.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

struct apt_source {
    char *uri;        /* as written; may hold credentials: show only apt_uri_public() of it */
    char *suite;      /* "bookworm-updates" */
    char *components; /* separated by single spaces; "" for a flat repository */
    char *signed_by;  /* "" when not given, "-" for a key inside the entry */
    char *archs;      /* separated by single spaces; "" for all */
};

struct apt_sources {
    struct apt_source *items;
    size_t count;
};

void apt_sources_done(struct apt_sources *s);

/* Appends the enabled `deb` entries of a one-line file. `name` stands in messages. Malformed lines
 * are ABX_INVALID_ARGUMENT, as they are for apt. */
int apt_sources_parse_list(struct apt_sources *s, struct slice text, const char *name,
                           struct abx_err *err);

/* The same for a deb822 file; each URI with each suite is an entry. */
int apt_sources_parse_deb822(struct apt_sources *s, struct slice text, const char *name,
                             struct abx_err *err);

/* Reads `etc_apt`/sources.list and sources.list.d/{*.list,*.sources} (by name). A missing file or
 * folder is fine. */
int apt_sources_load(struct apt_sources *s, const char *etc_apt, struct abx_err *err);

/* What of /etc/os-release matters here. */
struct os_release {
    char id[32];       /* "debian" or "ubuntu" */
    char codename[64]; /* "bookworm"; "" when the release has none */
};

/* Takes ID and VERSION_CODENAME from the text of an os-release file. ABX_FAILED_PRECONDITION when it
 * is neither Debian nor Ubuntu. */
int os_release_parse(struct slice text, struct os_release *ret, struct abx_err *err);

/* Debian's name of the architecture that this program is built for. */
const char *apt_native_arch(void);

/* "", "-updates" or "-security" when the entry may be the distribution's own archive for its own
 * release; NULL when it is something else (third party, other release, backports, sources, media). */
const char *apt_source_suffix(const struct apt_source *src, const struct os_release *os);

/* Those components of the entry that a template uses, separated by spaces; "" when none. Static
 * strings. */
const char *apt_source_components(const struct apt_source *src, const struct os_release *os);

/* The URI without user and password. Owned by the caller; NULL when out of memory. */
char *apt_uri_public(const char *uri);
