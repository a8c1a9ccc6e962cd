/* ids.h - sandbox ids (e2b.md 1.3).
 *
 * An id of ours is 'i' and 20 characters of [a-z0-9] (103 random bits), so that it is one DNS label
 * together with a port. Requests may carry `<id>-<clientID>`, as older SDKs do: what follows the
 * first '-' is dropped. Foreign ids are accepted as text, they are just not found later.
 */
#pragma once

#include "base/buf.h"

#define SANDBOX_ID_MAX 54 /* "65535-" and the id are one DNS label of at most 63, some to spare */
#define SANDBOX_ID_SIZE (SANDBOX_ID_MAX + 1)

/* A new id, NUL-terminated. */
void sandbox_id_new(char to[SANDBOX_ID_SIZE]);

/* Copies the id part of `s` ("<id>" or "<id>-<clientID>"); false when it is empty, too long or not
 * of [a-z0-9]. */
bool sandbox_id_parse(struct slice s, char to[SANDBOX_ID_SIZE]);

/* A random UUID (version 4) as text: builds, events, keys. */
#define UUID_SIZE 37
void uuid_new(char to[UUID_SIZE]);
/* Is it the text form of a UUID, either case? */
bool uuid_is_valid(struct slice s);

/* `n` random characters of [a-z0-9] and a NUL. */
void id_random(char *to, size_t n);
