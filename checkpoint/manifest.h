/* SPDX-License-Identifier: Apache-2.0
 *
 * Store format 1 in memory: claims, decisions (manifest, abort, seal) and end records, with
 * pure parse and print functions, and the keys they live under (docs/formats.md). Any thread; a
 * tree belongs to one thread at a time. Unknown JSON members are ignored; a "format" other than
 * 1 or an unknown required feature is HF_ENOTSUP.
 */
#ifndef HF_CHECKPOINT_MANIFEST_H
#define HF_CHECKPOINT_MANIFEST_H

#include "base/json.h"
#include "base/mem.h"

#define HF_NONCE_STRLEN  33 /* 128 bits in hex, and NUL */
#define HF_ID_STRLEN     65 /* SHA-256 in hex, and NUL */
#define HF_PREFIX_STRLEN 32 /* "000003-000012-1a2b3c4d" and NUL */
#define HF_KEY_MAX       256
#define HF_NUMBER_MAX    999999999u          /* of attempts and of checkpoints */
#define HF_LEFT_OUT_MAX  32                  /* paths that are named as left out */
#define HF_RECORD_MAX    (1u << 20)          /* bytes of a claim, an end or another small record */
#define HF_DECISION_MAX  (64u << 20)         /* bytes of a decision */
#define HF_BLOCK_MAX     (UINT64_C(1) << 30) /* plain bytes of one block */

enum hf_claim_kind { HF_CLAIM_RUN, HF_CLAIM_FINISHED, HF_CLAIM_STOPPED };

/* attempts/NNNNNN.json. Strings are owned (hf_claim_release). */
struct hf_claim {
    uint32_t attempt;
    enum hf_claim_kind kind;
    char nonce[HF_NONCE_STRLEN];
    struct hf_strv command; /* argv, byte for byte; empty for finished and stopped */
    char *folder;           /* absolute working folder, or NULL */
    bool fresh;             /* claimed with base "none" whatever is there (--fresh) */
    char *host;             /* the machine's name, for people */
    char *boot_id;          /* of the machine; with pid_ns tells "same host" */
    uint64_t pid_ns;        /* inode of the claimant's pid namespace */
    int64_t pid;            /* of the claiming supervisor */
    uint64_t pid_start;     /* its start time, field 22 of /proc/PID/stat */
    char *provider;         /* "aws", ... or "local" */
    int64_t at_wall_ms;     /* for people; no rule reads it */
};

enum hf_file_kind { HF_FILE_REGULAR, HF_FILE_DIR, HF_FILE_SYMLINK };

struct hf_extent {
    uint64_t off; /* in the file */
    uint64_t len;
    uint32_t block;     /* index into the manifest's blocks */
    uint64_t block_off; /* in the block; 0 until packing exists */
};

struct hf_file {
    uint32_t root; /* index into roots */
    char *path;    /* relative to the root, "" for the root itself; bytes, not text */
    enum hf_file_kind kind;
    uint32_t mode; /* permission bits */
    uint64_t size;
    char hash[HF_ID_STRLEN]; /* of a regular file: hf_file_hash; "" otherwise */
    char *target;            /* of a symlink; else NULL */
    struct hf_extent *extents;
    uint32_t n_extents;
};

struct hf_block {
    char id[HF_ID_STRLEN];        /* SHA-256 of the plain bytes */
    uint64_t len;                 /* plain bytes */
    char where[HF_PREFIX_STRLEN]; /* folder below data/ that holds it */
    char codec[8];                /* "raw"; "zero": nothing is stored; others are reserved */
};

struct hf_root {
    char *path; /* absolute; where it was saved from and goes back to */
    enum hf_file_kind kind;
};

struct hf_manifest {
    uint32_t attempt, number;
    char nonce[HF_NONCE_STRLEN]; /* the claim's */
    uint32_t life;               /* trainer life within the attempt */
    uint64_t request;            /* hook request id, 0: the trainer's own save */
    int64_t step;                /* -1: unknown */
    char *reason;                /* "notice", "every", "end", "own", "recovered" */
    char *strategy;              /* "hook", "watch" */
    uint32_t world;              /* ranks expected; 0: no hook */
    uint32_t *ranks;             /* ranks that reported, ascending; must be all of 0..world-1 */
    uint32_t n_ranks;
    int64_t at_wall_ms;
    char *resume_path;                      /* absolute: what HOLDFAST_RESUME names */
    uint32_t parent_attempt, parent_number; /* 0, 0: none */
    struct hf_root *roots;
    uint32_t n_roots;
    struct hf_file *files;
    uint32_t n_files;
    struct hf_block *blocks;
    uint32_t n_blocks;
    struct hf_strv left_out; /* sockets and the like that lay there; absolute paths */
    uint64_t bytes;          /* sum of regular files' sizes */
    uint64_t bytes_sent;     /* plain bytes of blocks uploaded for this checkpoint itself */
};

enum hf_decision_kind { HF_DECISION_MANIFEST, HF_DECISION_ABORT, HF_DECISION_SEAL };

/* checkpoints/NNNNNN-NNNNNN.json */
struct hf_decision {
    enum hf_decision_kind kind;
    char nonce[HF_NONCE_STRLEN]; /* of the claim it speaks for; for a seal: of the sealing claim */
    uint32_t by_attempt;         /* seal: the attempt that put it */
    struct hf_manifest manifest; /* kind manifest only */
};

/* How an attempt ended; attempts/NNNNNN.end.json. */
struct hf_end {
    char nonce[HF_NONCE_STRLEN];
    /* "finished", "failed", "hung", "preempted", "stopped", "vanished", "superseded", ... */
    char *outcome;
    int64_t exit_code; /* -1: none */
    int64_t signal;    /* 0: none */
    char *replacement; /* "requested", "not-requested", "unknown" */
    int64_t last_step; /* -1: unknown */
    bool forced;       /* SIGKILL was needed */
    char *left;        /* what lived on when this was recorded and could not be stopped; NULL */
    int64_t at_wall_ms;
};

void hf_claim_release(struct hf_claim *c);
void hf_manifest_release(struct hf_manifest *m);
void hf_decision_release(struct hf_decision *d);
void hf_end_release(struct hf_end *e);

/* The order of files within a root, and of everything that is listed: byte by byte, but '/' before
 * every other byte, so that a folder is followed by all that is in it. Pure. */
int hf_path_order(const char *a, const char *b);
/* SHA-256 over the ids of the extents' blocks, one after the other as 64 hex digits each: lanes
 * can fill it in any order. Pure. */
void hf_file_hash(const struct hf_file *f, const struct hf_block *blocks,
                  char ret_hex[HF_ID_STRLEN]);

/* All of its bytes are zero: there is no object for it. */
bool hf_block_is_zero(const struct hf_block *b);

/* Everything that a parser would refuse, on the structure: what passes can be committed and read
 * back. HF_ECORRUPT names what is wrong. Pure. */
enum hf_rc hf_manifest_check(const struct hf_manifest *m, struct hf_err *err) HF_MUST_USE;

/* Texts are owned by the caller (hf_free). Parsers check every index, range, order and path
 * (relative, no "..", no NUL, no absolute; roots absolute, normalised and none inside another;
 * files in hf_path_order, each in a folder that is listed before it; extents without a gap;
 * hashes, totals): what they return can be used without another look. On failure *ret is zeroed.
 * HF_ECORRUPT names what is wrong. */
char *hf_claim_print(const struct hf_claim *c);
enum hf_rc hf_claim_parse(struct hf_span text, struct hf_claim *ret,
                          struct hf_err *err) HF_MUST_USE;
char *hf_decision_print(const struct hf_decision *d);
enum hf_rc hf_decision_parse(struct hf_span text, struct hf_decision *ret,
                             struct hf_err *err) HF_MUST_USE;
char *hf_end_print(const struct hf_end *e);
enum hf_rc hf_end_parse(struct hf_span text, struct hf_end *ret, struct hf_err *err) HF_MUST_USE;

/* Keys; `out` has HF_KEY_MAX bytes; returned for use in a call. */
const char *hf_key_run(char *out, const char *run);
const char *hf_key_claim(char *out, const char *run, uint32_t attempt);
const char *hf_key_base(char *out, const char *run, uint32_t attempt);
const char *hf_key_alive(char *out, const char *run, uint32_t attempt);
const char *hf_key_end(char *out, const char *run, uint32_t attempt);
const char *hf_key_decision(char *out, const char *run, uint32_t attempt, uint32_t number);
const char *hf_key_retired(char *out, const char *run, uint32_t attempt, uint32_t number);
/* The nth record of a checkpoint's row of pins (checkpoint/pin.h). */
const char *hf_key_pin(char *out, const char *run, uint32_t attempt, uint32_t number, uint32_t n);
const char *hf_key_block(char *out, const char *run, const struct hf_block *b);
const char *hf_key_log(char *out, const char *run, uint32_t attempt, uint32_t number);
/* The number of a claim's key, 0: another key. Of a decision's key (false: another key). */
uint32_t hf_key_read_claim(const char *key, const char *run);
bool hf_key_read_decision(const char *key, const char *run, uint32_t *ret_attempt,
                          uint32_t *ret_number);
/* Of a block's key: whose folder it lies in, and the block but for its length. */
bool hf_key_read_block(const char *key, const char *run, uint32_t *ret_attempt,
                       uint32_t *ret_number, struct hf_block *ret);
/* "000003-000012-<first 8 of nonce>" */
void hf_prefix_of(char out[HF_PREFIX_STRLEN], uint32_t attempt, uint32_t number, const char *nonce);

#endif
