/* SPDX-License-Identifier: Apache-2.0
 *
 * What an attempt's command wrote, in the store: pieces logs/<attempt>/<number>.log.zst, numbered
 * from 1 without a gap, each put create-only after the one before it. A piece is one zstd skippable
 * frame (RFC 8878, 3.1.2) with a line of JSON, then one zstd frame with the bytes as they came:
 * "zstd -dc" on the pieces in their order gives the output back. Blocking, worker threads (or a
 * command's main thread). Pieces are kept as long as the run; no retention looks at them.
 */
#ifndef HF_CHECKPOINT_LOGS_H
#define HF_CHECKPOINT_LOGS_H

#include "base/prelude.h"

#include "checkpoint/lineage.h"

#define HF_LOG_PIECE_MAX (size_t)(1024 * 1024) /* bytes of output in a piece */

/* A piece: its key, what its line says, and how much it holds. */
struct hf_log_piece {
    uint32_t attempt, number;
    uint64_t offset;             /* of its first byte in the attempt's whole output */
    uint64_t missing;            /* bytes before it that are in no piece */
    int64_t at_wall_ms;          /* when it was made: its newest bytes are about this old */
    char nonce[HF_NONCE_STRLEN]; /* the claim's */
    size_t len;                  /* bytes of output; set when it is read */
};

/* Pure. An object is at most HF_LOG_OBJECT_MAX long. */
#define HF_LOG_OBJECT_MAX (HF_LOG_PIECE_MAX + 64 * 1024)
enum hf_rc hf_log_pack(const struct hf_log_piece *piece, struct hf_span raw, struct hf_buf *ret,
                       struct hf_err *err) HF_MUST_USE;
/* *ret keeps its key; *ret_raw is appended to. HF_ECORRUPT: it is no piece, or longer than
 * HF_LOG_PIECE_MAX. */
enum hf_rc hf_log_unpack(struct hf_span object, struct hf_log_piece *ret, struct hf_buf *ret_raw,
                         struct hf_err *err) HF_MUST_USE;

/* HF_EEXISTS: the number is taken, by *ret_other. */
enum hf_rc hf_log_put(const struct hf_run *run, const struct hf_call *c,
                      const struct hf_log_piece *piece, struct hf_span raw,
                      struct hf_log_piece *ret_other, struct hf_err *err) HF_MUST_USE;
/* Fills in the piece whose attempt and number are given. HF_ENOTFOUND: not there (yet). *ret_raw is
 * appended to. */
enum hf_rc hf_log_get(const struct hf_run *run, const struct hf_call *c, struct hf_log_piece *piece,
                      struct hf_buf *ret_raw, struct hf_err *err) HF_MUST_USE;
/* The highest number, 0: none. By looks at single keys, as the numbers have no gap. */
enum hf_rc hf_log_last(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                       uint32_t *ret_number, struct hf_err *err) HF_MUST_USE;
/* The first piece that was made at or after wall_ms; one beyond the last: none was. */
enum hf_rc hf_log_since(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                        int64_t wall_ms, uint32_t *ret_number, struct hf_err *err) HF_MUST_USE;

#endif
