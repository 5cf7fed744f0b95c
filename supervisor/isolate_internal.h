/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of supervisor/isolate share. Nobody else includes this but their unit test.
 *
 * State on disk, all below `work`: isolate.lock (held while the drill lives), isolate.json (what
 * recovery must know; written before anything else is touched, removed last), isolate.list (the
 * inventory of journal mode), isolate.kept (folders that a recovery left for the person).
 */
#ifndef HF_SUPERVISOR_ISOLATE_INTERNAL_H
#define HF_SUPERVISOR_ISOLATE_INTERNAL_H

#include "base/prelude.h"

#include <sys/stat.h>

#include "base/err.h"
#include "base/mem.h"
#include "supervisor/isolate.h"

#define HF_ISO_ENTRIES_MAX 200000
#define HF_ISO_COPY_MAX    (UINT64_C(1) << 30)

/* How far a journal drill got. The words are in isolate.json. */
enum hf_iso_phase {
    HF_ISO_PREPARING, /* nothing of the user's was touched */
    HF_ISO_ARMED,     /* attempts may have changed anything */
    HF_ISO_RESTORED   /* all is put right; only the drill's own folders are left to remove */
};

enum hf_iso_kind {
    HF_ISO_DIR = 1,
    HF_ISO_FILE,
    HF_ISO_SYMLINK,
    HF_ISO_SPECIAL, /* fifo, socket, device */
    HF_ISO_SKIPPED, /* the path belongs to the user, what is below it is not looked at */
    HF_ISO_ABSENT   /* the path was not there */
};

enum hf_iso_guard {
    HF_ISO_UNGUARDED,
    HF_ISO_COPY, /* content copied: can be put back whatever happens to the file */
    HF_ISO_LINK  /* a second name: can be put back unless it is written in place */
};

/* One path at the beginning of the drill. */
struct hf_iso_entry {
    char *path;   /* absolute */
    char *target; /* of a symlink */
    enum hf_iso_kind kind;
    enum hf_iso_guard guard;
    uint32_t place;  /* the index of its folder, and so of the hidden place */
    uint32_t number; /* the name of its copy or link in the place */
    uint32_t mode, uid, gid, links;
    uint64_t size, inode;
    struct statx_timestamp mtime, ctime;
};

/* Sorted by path, so that folders come before what is in them. */
struct hf_iso_list {
    struct hf_iso_entry *items;
    size_t len, cap;
};

struct hf_iso_mount {
    char *path;
    int fd; /* O_PATH, taken before anything was mounted over it */
};

struct hf_iso_overlay {
    char *scratch; /* upper and work folders of all machines */
    bool redirect; /* renames of the user's folders work inside the overlay */
    unsigned machine;
    size_t mounted;            /* dirs that are covered now, from the first on */
    struct hf_iso_mount *dirs; /* one for each of iso->dirs */
    struct hf_iso_mount *back; /* mounts below dirs, and `work`: bound back after covering */
    size_t back_len;
    struct hf_strv made; /* folders that were made to be covered; innermost first */
};

struct hf_iso_journal {
    enum hf_iso_phase phase;
    struct hf_iso_list list;
    struct hf_strv places; /* one hidden folder for each of iso->dirs, on the same mount */
    unsigned round;        /* counts restores: each has its own folder for what it hides */
};

struct hf_isolate {
    enum hf_isolate_mode mode;
    char id[17];
    char *work; /* real path */
    char *cwd;
    int lock_fd;
    struct hf_strv dirs;   /* real paths, none inside another */
    struct hf_strv strict; /* given folders other than the working folder */
    struct hf_iso_overlay overlay;
    struct hf_iso_journal journal;
};

/* isolate.c. mode 0: overlay if possible, else the journal. */
enum hf_rc hf_isolate_begin_as(enum hf_isolate_mode mode, const struct hf_strv *dirs,
                               const char *work, struct hf_isolate **ret, struct hf_strv *ret_notes,
                               struct hf_err *err) HF_MUST_USE;
/* Writes isolate.json; the old or the new content stands. */
enum hf_rc hf_iso_save(const struct hf_isolate *iso, struct hf_err *err) HF_MUST_USE;
/* For functions that look at an error before they decide whether it is theirs. */
static inline enum hf_rc hf_iso_pass(struct hf_err *err, const struct hf_err *from)
{
    if (err != NULL) {
        *err = *from;
    }
    return from->code;
}
bool hf_iso_inside(const char *path, const char *dir); /* equal counts */
char *hf_iso_parent(const char *path);                 /* owned by the caller */

/* isolate_overlay.c. HF_ENOTSUP: cannot be used here, nothing is left of the trial. */
enum hf_rc hf_iso_overlay_begin(struct hf_isolate *iso, struct hf_strv *notes,
                                struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_iso_overlay_new_machine(struct hf_isolate *iso, struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_iso_overlay_end(struct hf_isolate *iso, struct hf_err *err) HF_MUST_USE;
/* After the process died its mounts are gone: removes scratch and made folders. */
enum hf_rc hf_iso_overlay_recover(struct hf_isolate *iso, struct hf_err *err) HF_MUST_USE;
void hf_iso_overlay_release(struct hf_isolate *iso);

/* isolate_journal.c. */
enum hf_rc hf_iso_journal_begin(struct hf_isolate *iso, struct hf_strv *notes,
                                struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_iso_journal_new_machine(struct hf_isolate *iso, struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_iso_journal_end(struct hf_isolate *iso, struct hf_err *err) HF_MUST_USE;
/* From the phase and the places in isolate.json alone. */
enum hf_rc hf_iso_journal_recover(struct hf_isolate *iso, struct hf_err *err) HF_MUST_USE;
void hf_iso_journal_release(struct hf_isolate *iso);

/* isolate_guard.c: the inventory and what protects its files. */
enum hf_rc hf_iso_take(struct hf_isolate *iso, struct hf_strv *notes,
                       struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_iso_guard_all(struct hf_isolate *iso, struct hf_strv *notes,
                            struct hf_err *err) HF_MUST_USE;
/* The name of an entry's copy or link; owned by the caller. */
char *hf_iso_guard_path(const struct hf_isolate *iso, const struct hf_iso_entry *entry);
const char *hf_iso_size_text(uint64_t bytes, char out[32]);

/* isolate_tree.c. */
struct hf_iso_entry *hf_iso_list_add(struct hf_iso_list *list, const char *path);
struct hf_iso_entry *hf_iso_list_find(const struct hf_iso_list *list, const char *path);
void hf_iso_list_sort(struct hf_iso_list *list);
void hf_iso_list_release(struct hf_iso_list *list);
enum hf_rc hf_iso_list_write(const struct hf_iso_list *list, const char *path,
                             struct hf_err *err) HF_MUST_USE;
/* HF_ECORRUPT when the file is cut off or malformed. */
enum hf_rc hf_iso_list_read(struct hf_iso_list *list, const char *path,
                            struct hf_err *err) HF_MUST_USE;

/* Fills kind, mode, owner, size, times and link target from the file system. HF_ENOTFOUND. */
enum hf_rc hf_iso_look(const char *path, struct hf_iso_entry *ret, uint64_t *ret_dev,
                       bool *ret_mount_root, struct hf_err *err) HF_MUST_USE;
void hf_iso_entry_release(struct hf_iso_entry *entry);

/* Calls visit for all below root, each folder before its content, which is walked when visit set
 * *descend. visit may move what it is called for. */
typedef enum hf_rc hf_iso_visit_fn(void *user, const char *path, bool *descend, struct hf_err *err);
enum hf_rc hf_iso_walk(const char *root, hf_iso_visit_fn *visit, void *user,
                       struct hf_err *err) HF_MUST_USE;
/* Removes a tree, also where folders forbid it to their owner. */
enum hf_rc hf_iso_remove(const char *path, struct hf_err *err) HF_MUST_USE;

enum hf_iso_copy { HF_ISO_CLONED = 1, HF_ISO_COPIED, HF_ISO_TOO_BIG };
/* Makes `to` (0600, must not exist) a copy of the regular file `from`, sharing its blocks where
 * the file system can; otherwise only up to max_bytes (HF_ISO_TOO_BIG: nothing was made). */
enum hf_rc hf_iso_copy(const char *from, const char *to, uint64_t max_bytes,
                       enum hf_iso_copy *ret_how, struct hf_err *err) HF_MUST_USE;
/* Whether two regular files hold the same bytes; false when one cannot be read. */
bool hf_iso_equal(const char *a, const char *b) HF_MUST_USE;
/* rename(2), a fault point. */
enum hf_rc hf_iso_rename(const char *from, const char *to, struct hf_err *err) HF_MUST_USE;

#endif
