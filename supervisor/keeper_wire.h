/* SPDX-License-Identifier: Apache-2.0
 *
 * The private talk between keeper and supervisor: frames over one connected Unix socket, both
 * ends non-blocking. A frame is {u32 type, u32 length} and a body; every body but SPEC's is two
 * numbers and an optional text. Descriptors travel with the first bytes of a connection alone.
 * A type that the other side does not know is skipped. One thread at a time.
 */
#ifndef HF_SUPERVISOR_KEEPER_WIRE_H
#define HF_SUPERVISOR_KEEPER_WIRE_H

#include "base/prelude.h"

#include "base/buf.h"

#define HF_WIRE_MAX_FDS    3
#define HF_WIRE_MAX_SPEC   (size_t)(64 * 1024 * 1024) /* argv and environment; Linux allows less */
#define HF_WIRE_MAX_QUEUED (size_t)(256 * 1024)

enum hf_wire_type {
    /* to the keeper */
    HF_WIRE_SPEC = 1, /* descriptors: listening socket, log */
    HF_WIRE_SINKS,    /* a: in the foreground; descriptors: stdin, stdout, stderr */
    HF_WIRE_SIGNAL,   /* a: signal */
    HF_WIRE_END,      /* b: grace in ms */
    HF_WIRE_CONTINUE, /* a: in the foreground */
    HF_WIRE_WINDOW,
    /* to the supervisor */
    HF_WIRE_STARTED = 32, /* a: pid, b: CLOCK_BOOTTIME of the exec */
    HF_WIRE_EXEC_FAILED,  /* a: errno */
    HF_WIRE_EXITED,       /* a: raw wait status, b: it was sent SIGKILL by the keeper */
    HF_WIRE_STOPPED,
    HF_WIRE_INTERRUPT,
    HF_WIRE_STRAGGLER,  /* a: pid, b: killed; text: name */
    HF_WIRE_RAW,        /* a: the terminal is in raw mode */
    HF_WIRE_GONE,       /* a: raw wait status */
    HF_WIRE_LOG_DROPPED /* a: errno, 0: it is written again; b: bytes dropped so far */
};

struct hf_wire {
    int fd; /* owned; -1: not connected */
    struct hf_buf in, out;
    int got[HF_WIRE_MAX_FDS]; /* received, owned until taken */
    size_t got_len;
    int give[HF_WIRE_MAX_FDS]; /* borrowed until the first bytes are out */
    size_t give_len;
};

struct hf_wire_msg {
    uint32_t type;
    int64_t a;
    uint64_t b;
    struct hf_span body; /* SPEC: the whole body; else the text. Valid until the next call */
    size_t size;         /* of the frame, for hf_wire_drop */
};

/* Takes fd (non-blocking, or -1). max_in bounds one frame that is received. */
void hf_wire_init(struct hf_wire *w, int fd_taken, size_t max_in);
/* Closes the socket and what was received and not taken. The struct is then not connected. */
void hf_wire_close(struct hf_wire *w);
/* The descriptor received at `index` becomes the caller's; -1 when there is none. */
int hf_wire_take_fd(struct hf_wire *w, size_t index);

/* Queues a frame; HF_EFULL when the other side does not read. text may be NULL. */
enum hf_rc hf_wire_put(struct hf_wire *w, enum hf_wire_type type, int64_t a, uint64_t b,
                       const char *text, struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_wire_put_raw(struct hf_wire *w, enum hf_wire_type type, struct hf_span body,
                           struct hf_err *err) HF_MUST_USE;
/* Sends what the socket takes now; what is left stays queued. HF_EIO...: the other side is gone. */
enum hf_rc hf_wire_flush(struct hf_wire *w, struct hf_err *err) HF_MUST_USE;

/* Reads what is there. false: the other side has closed (what came before can still be read). */
bool hf_wire_fill(struct hf_wire *w);
/* The next whole frame, or false. The caller drops it when done with it. */
bool hf_wire_next(struct hf_wire *w, struct hf_wire_msg *ret);
void hf_wire_drop(struct hf_wire *w, const struct hf_wire_msg *msg);

/* SPEC's body: counted byte strings, read back by a cursor. */
enum hf_rc hf_wire_add(struct hf_buf *b, const void *data, size_t len,
                       struct hf_err *err) HF_MUST_USE;
/* The next string of *rest, or false when it is cut short. */
bool hf_wire_cut(struct hf_span *rest, struct hf_span *ret);

#endif
