/* SPDX-License-Identifier: Apache-2.0
 *
 * A Unix socket on the loop that takes lines and gives lines. Connections that send a line longer
 * than HFW_LINE_BYTES, or do not read what they asked for, are dropped, alone; of too many the
 * oldest one whose tag was never set gives way. Loop thread only.
 */
#ifndef HF_HOOKS_LINESOCK_H
#define HF_HOOKS_LINESOCK_H

#include "base/prelude.h"

#include "base/loop.h"

struct hf_linesock;
struct hf_lineconn;

struct hf_linesock_cb {
    /* A line without its newline, NUL-terminated; borrowed. The connection may be dropped here. */
    void (*line)(void *user, struct hf_lineconn *conn, const char *line, size_t len);
    /* The peer closed (why is NULL), or it was dropped for what `why` says. Once; not after
     * hf_lineconn_drop. The connection is invalid afterwards. All lines before were delivered. */
    void (*gone)(void *user, struct hf_lineconn *conn, const char *why);
};

/* Replaces a stale socket at `path`, of any length; mode 0600. */
enum hf_rc hf_linesock_open(struct hf_loop *loop, const char *path, const struct hf_linesock_cb *cb,
                            void *user, struct hf_linesock **ret, struct hf_err *err) HF_MUST_USE;
/* Drops every connection and removes the socket; no callback follows. NULL is fine; run the loop
 * once more. */
void hf_linesock_close(struct hf_linesock *ls);

/* Sends one line; takes the text (hf_free). What the peer does not read gets it dropped later. */
void hf_lineconn_send(struct hf_lineconn *conn, char *line_taken);
void hf_lineconn_drop(struct hf_lineconn *conn);
/* The process at the other end, as this process sees it; 0: not visible (another pid namespace). */
int32_t hf_lineconn_pid(const struct hf_lineconn *conn);
/* One number of the owner's, -1 at first. */
void hf_lineconn_set_tag(struct hf_lineconn *conn, int64_t tag);
int64_t hf_lineconn_tag(const struct hf_lineconn *conn);

#endif
