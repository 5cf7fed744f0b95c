/* SPDX-License-Identifier: Apache-2.0
 *
 * As much JSON as the C client needs: printing one object a line, and looking up members of one.
 * Bytes that are not UTF-8 travel as {"hex":"..."}. Private to the client.
 */
#ifndef HOLDFAST_JSON_LINE_H
#define HOLDFAST_JSON_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A text of bounded length under construction. */
struct hfj_out {
    char *data;
    size_t len, cap;
    bool full; /* something did not fit: the text is of no use */
};
void hfj_text(struct hfj_out *o, const char *text);
void hfj_int(struct hfj_out *o, int64_t value);
void hfj_bytes(struct hfj_out *o, const char *text); /* a byte string as a JSON value */

/* The value of a member of the object at p, or NULL; also when p is NULL or no object. The key must
 * not need escapes. */
const char *hfj_find(const char *p, const char *key);
/* False, *ret unchanged: missing or no integer. */
bool hfj_get_int(const char *obj, const char *key, int64_t *ret);
/* The byte string at p (a string, or {"hex":"..."}) in memory of the caller (free), or NULL. */
char *hfj_read_bytes(const char *p);

#endif
