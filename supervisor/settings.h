/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings: one table (settings_table.c) that flags, environment, settings file and --help all
 * read. Flags win over the environment, it over the file, it over the defaults. Pure but for
 * hf_settings_load, which reads the settings file (blocking, before the loop runs). One thread
 * at a time.
 */
#ifndef HF_SUPERVISOR_SETTINGS_H
#define HF_SUPERVISOR_SETTINGS_H

#include "base/err.h"
#include "base/mem.h"
#include "supervisor/settings_text.h"

/* The order of the rows in the table, which is the order in --help. */
enum hf_set_id {
    HF_SET_RUN,
    HF_SET_STORE,
    HF_SET_STORE_SURVIVES,
    HF_SET_STORE_ENDPOINT,
    HF_SET_STORE_REGION,
    HF_SET_STORE_CHECKSUM,
    HF_SET_TLS,
    HF_SET_KEY_FILE,
    HF_SET_KEY_PASSPHRASE_FILE,
    HF_SET_STATE_DIR,
    HF_SET_RESUME,
    HF_SET_FRESH,
    HF_SET_ALLOW_WORLD_CHANGE,
    HF_SET_DETACH,
    HF_SET_EVERY,
    HF_SET_KEEP,
    HF_SET_GRACE,
    HF_SET_USE_WINDOW,
    HF_SET_LINGER,
    HF_SET_STOP_SIGNAL,
    HF_SET_SAVE_SIGNAL,
    HF_SET_SAVE_COMMAND,
    HF_SET_HANG_AFTER,
    HF_SET_ON_HANG,
    HF_SET_MAX_CRASHES,
    HF_SET_CHECKPOINT_DIR,
    HF_SET_CHECKPOINT_QUIET,
    HF_SET_RESUME_ARGS,
    HF_SET_DONE_FILE,
    HF_SET_SAVE_DIR,
    HF_SET_NOTICE_FILE,
    HF_SET_NOTICE_SIGNAL,
    HF_SET_METADATA_ENDPOINT,
    HF_SET_PROVIDER,
    HF_SET_METRICS_FILE,
    HF_SET_POLL,
    HF_SET_HEARTBEAT,
    HF_SET_DEAD_AFTER,
    HF_SET_HANDSHAKE_TIMEOUT,
    HF_SET_BLOCK_SIZE,
    HF_SET_LANES,
    HF_SET_LIMIT_RATE,
    HF_SET_LOG_DISK,
    HF_SET_STORE_LOGS,
    HF_SET_NOTICE,
    HF_SET_AFTER,
    HF_SET_AT_STEP,
    HF_SET_TIMES,
    HF_SET_NO_NOTICE,
    HF_SET_CHAOS,
    HF_SET_UNTIL,
    HF_SET_RECOVER,
    HF_SET_ATTEMPT,
    HF_SET_FOLLOW,
    HF_SET_SINCE,
    HF_SET_OWN,
    HF_SET_SPEND,
    HF_SET_EVEN_LAST,
    HF_SET_DRY_RUN,
    HF_SET_JSON,
    HF_SET_RANKS,
    HF_SET_LOG_FORMAT,
    HF_SET_QUIET,
    HF_SET_DEBUG,
    HF_SET_CONFIG,
    HF_SET_MAX
};

/* How a value's text is read, and which getter gives it back (all but lists: hf_set_str too). */
enum hf_set_type {
    HF_SET_TEXT = 1, /* str */
    HF_SET_NAME,     /* str: a run's name */
    HF_SET_PATH,     /* str: not empty; in the settings file a leading "~/" is the home folder */
    HF_SET_BOOL,     /* bool: the flag alone, --no-NAME; elsewhere the words true and false */
    HF_SET_INT,      /* int */
    HF_SET_DURATION, /* ms: base/clock.h's forms */
    HF_SET_BYTES,    /* int: bytes; B, KiB, MiB, GiB */
    HF_SET_SIGNAL,   /* int: the number; "USR1", "SIGUSR1" or "10" */
    HF_SET_ENUM,     /* int: the index in the row's words; str: the word */
    HF_SET_PATHS,    /* list: the flag repeated; "a:b" in the environment; a sequence in a file */
    HF_SET_WORDS     /* list: one text split like a shell does, nothing expanded */
};

/* Values of enum settings, in the order of their words. */
enum hf_provider_choice { HF_PROVIDER_AUTO, HF_PROVIDER_AWS, HF_PROVIDER_NONE };
enum hf_store_checksum { HF_STORE_CHECKSUM_MD5, HF_STORE_CHECKSUM_NONE };
enum hf_tls { HF_TLS_1_2, HF_TLS_1_3 };
enum hf_on_hang { HF_ON_HANG_TELL, HF_ON_HANG_RESTART };
enum hf_until_choice { HF_UNTIL_RESUMED, HF_UNTIL_FINISHED };
/* HF_SET_LOG_FORMAT: enum hf_log_format */

/* Commands as bits, for a row's `commands` and a command's `group`. */
enum hf_set_command {
    HF_FOR_RUN = 1,
    HF_FOR_DRILL = 2,
    HF_FOR_STATUS = 4,
    HF_FOR_CKPT = 8,
    HF_FOR_LOGS = 16,
    HF_FOR_DOCTOR = 32
};

/* hf_set_ms of a duration that is given as its row's word. */
#define HF_SET_WORD ((uint64_t)INT64_MAX)

struct hf_setting {
    const char *name; /* the flag is --NAME, the key in a file is NAME */
    char letter;      /* -q; 0: none */
    const char *env;  /* NULL: neither the environment nor a file can set it */
    enum hf_set_type type;
    const char *fallback; /* text as a user would give it; NULL: unset */
    int64_t min, max;     /* of int, bytes, duration (ms); 0, 0: none but the type's own */
    const char *words;    /* enum: "auto aws none"; duration: a word that it may be: HF_SET_WORD */
    unsigned commands;    /* enum hf_set_command */
    const char *arg;      /* what --help calls the value */
    const char *help;     /* one line, lower case, no full stop */
};
extern const struct hf_setting hf_settings_table[HF_SET_MAX];

/* Where a value comes from; a higher one wins. */
enum hf_origin { HF_FROM_DEFAULT, HF_FROM_FILE, HF_FROM_ENV, HF_FROM_FLAG };

struct hf_settings;

/* All defaults. Free with hf_settings_free (NULL is fine). */
struct hf_settings *hf_settings_new(void);
void hf_settings_free(struct hf_settings *s);

struct hf_settings_in {
    unsigned command;  /* one enum hf_set_command: flags of other commands are refused */
    char *const *argv; /* after the command's name; NULL-terminated; outlives the settings */
    char *const *env;  /* NULL-terminated "NAME=value" */
    bool mixed;        /* flags may follow operands (status, ckpt, logs), up to "--" */
};

/* Fills from flags, environment, file and computed defaults (the state folder). HF_EINVAL names
 * the flag, variable or file line and the remedy; s is then good for hf_settings_free and for
 * the log settings alone. With -h or --help it returns HF_OK early: see hf_settings_help. */
enum hf_rc hf_settings_load(struct hf_settings *s, const struct hf_settings_in *in,
                            struct hf_err *err) HF_MUST_USE;
bool hf_settings_help(const struct hf_settings *s); /* --help or -h was among the flags */
/* What the flags left: the wrapped command or the operands, NULL-terminated. The pointers are
 * the caller's own argv strings, untouched; the array is owned by s. */
char *const *hf_settings_rest(const struct hf_settings *s);

/* Reads one settings file (YAML, or JSON if it ends in ".json") into s, below env and flags.
 * HF_ENOTFOUND if missing, else HF_EINVAL as "FILE:line:column: ...". A byte order mark and CR LF
 * are fine. home: for "~/", may be NULL. */
enum hf_rc hf_settings_file(struct hf_settings *s, const char *path, const char *home,
                            struct hf_err *err) HF_MUST_USE;
/* Sets one value from text, unless a higher origin set it already. A list set by the same
 * origin grows. `where` names the place for origins and messages ("--every", "HOLDFAST_EVERY",
 * "holdfast.yaml:3"). */
enum hf_rc hf_settings_set(struct hf_settings *s, enum hf_set_id id, enum hf_origin origin,
                           const char *where, const char *text, struct hf_err *err) HF_MUST_USE;

/* The row of that name, or HF_SET_MAX. */
enum hf_set_id hf_settings_find(const char *name);

/* Getters. The type must be that of the row (asserted). Strings and lists stay owned by s. */
const char *hf_set_str(const struct hf_settings *s, enum hf_set_id id); /* NULL: unset */
bool hf_set_bool(const struct hf_settings *s, enum hf_set_id id);
int64_t hf_set_int(const struct hf_settings *s, enum hf_set_id id); /* -1: unset */
uint64_t hf_set_ms(const struct hf_settings *s, enum hf_set_id id);
const struct hf_strv *hf_set_list(const struct hf_settings *s, enum hf_set_id id);
/* What is said of the store beside its URI (cloud/store.h); the texts stay owned by s. */
struct hf_store_cfg;
struct hf_store_cfg hf_set_store(const struct hf_settings *s);
bool hf_set_given(const struct hf_settings *s, enum hf_set_id id); /* not the default */
enum hf_origin hf_set_origin(const struct hf_settings *s, enum hf_set_id id);
const char *hf_set_where(const struct hf_settings *s, enum hf_set_id id); /* "" for defaults */

#endif
