/* SPDX-License-Identifier: Apache-2.0
 *
 * The drill's isolation: which folders, which mode, and the record (isolate.json) by which a
 * later start undoes a drill that died. The work is done by isolate_overlay.c or
 * isolate_journal.c. Blocking; must be called before the process has other threads, since a mount
 * namespace belongs to one thread.
 */
#include "base/prelude.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fsx.h"
#include "base/hash.h"
#include "base/json.h"
#include "supervisor/isolate.h"
#include "supervisor/isolate_internal.h"

#define HEAD_MAX_BYTES (4u << 20)

static const char *const phase_names[] = {
    [HF_ISO_PREPARING] = "preparing",
    [HF_ISO_ARMED] = "armed",
    [HF_ISO_RESTORED] = "restored",
};

/* ---- paths ----------------------------------------------------------------------------- */

bool hf_iso_inside(const char *path, const char *dir)
{
    size_t len = strlen(dir);
    return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

char *hf_iso_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL || slash == path ? hf_strdup("/")
                                          : hf_strndup(path, (size_t)(slash - path));
}

/* The real path of what exists of `path`, and the rest as written. */
static enum hf_rc real_path(const char *path, char **ret, struct hf_err *err)
{
    if (path[0] != '/') {
        return hf_fail(err, HF_EINVAL, "'%s' is not an absolute path", path);
    }
    char *head = hf_strdup(path);
    char *real = realpath(head, NULL);
    while (real == NULL && errno == ENOENT && strcmp(head, "/") != 0) {
        char *parent = hf_iso_parent(head);
        hf_free(head);
        head = parent;
        real = realpath(head, NULL);
    }
    if (real == NULL) {
        enum hf_rc rc = hf_fail_errno(err, errno, "find '%s'", path);
        hf_free(head);
        return rc;
    }
    const char *rest = strcmp(head, "/") == 0 ? path : path + strlen(head);
    *ret = rest[0] == '\0' || strcmp(rest, "/") == 0
               ? hf_strdup(real)
               : hf_asprintf("%s%s", strcmp(real, "/") == 0 ? "" : real, rest);
    size_t len = strlen(*ret);
    while (len > 1 && (*ret)[len - 1] == '/') {
        (*ret)[--len] = '\0';
    }
    hf_free(real);
    hf_free(head);
    return HF_OK;
}

static bool covered(const struct hf_strv *all, size_t self)
{
    for (size_t i = 0; i < all->len; i++) {
        bool same = strcmp(all->items[i], all->items[self]) == 0;
        if (i != self && hf_iso_inside(all->items[self], all->items[i]) && (!same || i < self)) {
            return true;
        }
    }
    return false;
}

static enum hf_rc add_dir(struct hf_isolate *iso, struct hf_strv *all, const char *dir,
                          struct hf_strv *notes, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *real = NULL;
    HF_TRY(real_path(dir, &real, err));
    struct stat st;
    struct statvfs fs;
    if (stat(real, &st) == 0) {
        if (!S_ISDIR(st.st_mode)) {
            return hf_fail(err, HF_EINVAL, "'%s' is not a folder", dir);
        }
        if (statvfs(real, &fs) == 0 && (fs.f_flag & ST_RDONLY) != 0) {
            hf_strv_take(notes, hf_asprintf("'%s' is on a read-only file system: nothing can "
                                            "change there.",
                                            real));
            return HF_OK;
        }
    }
    if (strcmp(real, "/") == 0) {
        enum hf_rc rc = hf_fail(err, HF_ENOTSUP, "the root folder cannot be isolated");
        return hf_hint(err, rc, "Run the drill in a folder of its own.");
    }
    if (iso->cwd == NULL || !hf_iso_inside(iso->cwd, real)) {
        hf_strv_add(&iso->strict, real);
    }
    hf_strv_add(all, real);
    return HF_OK;
}

static enum hf_rc set_dirs(struct hf_isolate *iso, const struct hf_strv *dirs,
                           struct hf_strv *notes, struct hf_err *err)
{
    struct hf_strv all = {0};
    enum hf_rc rc = HF_OK;
    for (size_t i = 0; i < dirs->len && rc == HF_OK; i++) {
        rc = add_dir(iso, &all, dirs->items[i], notes, err);
    }
    for (size_t i = 0; i < all.len && rc == HF_OK; i++) {
        if (hf_iso_inside(all.items[i], iso->work)) {
            rc = hf_fail(err, HF_EINVAL, "'%s' lies inside the drill's own folder '%s'",
                         all.items[i], iso->work);
        } else if (!covered(&all, i)) {
            hf_strv_add(&iso->dirs, all.items[i]);
        }
    }
    hf_strv_clear(&all);
    return rc;
}

/* ---- the record ------------------------------------------------------------------------ */

static char *head_path(const char *work)
{
    return hf_asprintf("%s/isolate.json", work);
}

static void add_paths(cJSON *obj, const char *key, const struct hf_strv *v)
{
    cJSON *arr = hf_json_arr();
    for (size_t i = 0; i < v->len; i++) {
        hf_json_push(arr, hf_json_bytes(v->items[i]));
    }
    hf_json_add(obj, key, arr);
}

enum hf_rc hf_iso_save(const struct hf_isolate *iso, struct hf_err *err)
{
    cJSON *obj = hf_json_obj();
    hf_json_add_int(obj, "isolate", 1);
    hf_json_add_str(obj, "mode", iso->mode == HF_ISOLATE_OVERLAY ? "overlay" : "journal");
    hf_json_add_str(obj, "id", iso->id);
    add_paths(obj, "dirs", &iso->dirs);
    hf_json_add_str(obj, "phase", phase_names[iso->journal.phase]);
    add_paths(obj, "places", &iso->journal.places);
    if (iso->overlay.scratch != NULL) {
        hf_json_add(obj, "scratch", hf_json_bytes(iso->overlay.scratch));
    }
    add_paths(obj, "made", &iso->overlay.made);
    HF_CLEANUP(hf_freep) char *text = hf_json_print(obj);
    hf_json_free(obj);
    HF_CLEANUP(hf_freep) char *path = head_path(iso->work);
    return hf_fs_write(path, (struct hf_span){text, strlen(text)}, 0600, true, err);
}

static enum hf_rc get_paths(const cJSON *obj, const char *key, struct hf_strv *ret,
                            struct hf_err *err)
{
    const cJSON *arr = NULL;
    HF_TRY(hf_json_get_arr(obj, key, &arr, err));
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, arr)
    {
        char *path = NULL;
        HF_TRY(hf_json_bytes_read(item, &path, err));
        hf_strv_take(ret, path);
    }
    return HF_OK;
}

static enum hf_rc head_parse(struct hf_isolate *iso, const cJSON *obj, struct hf_err *err)
{
    int64_t format = 0;
    const char *text = NULL;
    HF_TRY(hf_json_get_int(obj, "isolate", 1, 1, &format, err));
    HF_TRY(hf_json_get_str(obj, "id", &text, err));
    snprintf(iso->id, sizeof(iso->id), "%s", text);
    HF_TRY(hf_json_get_str(obj, "mode", &text, err));
    iso->mode = strcmp(text, "overlay") == 0 ? HF_ISOLATE_OVERLAY : HF_ISOLATE_JOURNAL;
    HF_TRY(hf_json_get_str(obj, "phase", &text, err));
    size_t phase = 0;
    while (phase < HF_COUNT(phase_names) && strcmp(text, phase_names[phase]) != 0) {
        phase++;
    }
    if (phase == HF_COUNT(phase_names)) {
        return hf_fail(err, HF_ECORRUPT, "unknown phase '%s'", text);
    }
    iso->journal.phase = (enum hf_iso_phase)phase;
    HF_TRY(get_paths(obj, "dirs", &iso->dirs, err));
    HF_TRY(get_paths(obj, "places", &iso->journal.places, err));
    HF_TRY(get_paths(obj, "made", &iso->overlay.made, err));
    if (iso->journal.places.len > 0 && iso->journal.places.len != iso->dirs.len) {
        return hf_fail(err, HF_ECORRUPT, "%zu folders, but %zu places", iso->dirs.len,
                       iso->journal.places.len);
    }
    const cJSON *scratch = hf_json_opt(obj, "scratch");
    return scratch != NULL ? hf_json_bytes_read(scratch, &iso->overlay.scratch, err) : HF_OK;
}

static enum hf_rc head_read(struct hf_isolate *iso, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *path = head_path(iso->work);
    struct hf_buf b;
    hf_buf_init(&b, HEAD_MAX_BYTES);
    cJSON *obj = NULL;
    enum hf_rc rc = hf_fs_read(path, &b, err);
    if (rc == HF_OK) {
        rc = hf_json_parse(hf_buf_span(&b), HEAD_MAX_BYTES, &obj, err);
    }
    if (rc == HF_OK) {
        rc = head_parse(iso, obj, err);
    }
    hf_json_free(obj);
    hf_buf_release(&b);
    return rc == HF_OK ? HF_OK : hf_wrap(err, rc, "record of the drill '%s'", path);
}

/* ---- the object ------------------------------------------------------------------------ */

static void release(struct hf_isolate *iso)
{
    if (iso == NULL) {
        return;
    }
    hf_iso_overlay_release(iso);
    hf_iso_journal_release(iso);
    hf_closep(&iso->lock_fd);
    hf_strv_clear(&iso->dirs);
    hf_strv_clear(&iso->strict);
    hf_free(iso->work);
    hf_free(iso->cwd);
    hf_free(iso);
}

/* Opens `work` and takes its lock. *ret is valid, and to be released, on failure too. */
static enum hf_rc open_work(const char *work, struct hf_isolate **ret, struct hf_err *err)
{
    struct hf_isolate *iso = HF_NEW(struct hf_isolate);
    iso->lock_fd = -1;
    *ret = iso;
    HF_TRY(real_path(work, &iso->work, err));
    HF_CLEANUP(hf_freep) char *lock = hf_asprintf("%s/isolate.lock", iso->work);
    enum hf_rc rc = hf_fs_lock(lock, &iso->lock_fd, err);
    return rc == HF_EAGAIN
               ? hf_fail(err, rc, "another drill, or its command, still runs in '%s'", iso->work)
               : rc;
}

static void say_what(const struct hf_isolate *iso, struct hf_strv *notes)
{
    char *names = hf_strdup("");
    for (size_t i = 0; i < iso->dirs.len; i++) {
        char *more = hf_asprintf("%s%s'%s'", names, i > 0 ? ", " : "", iso->dirs.items[i]);
        hf_free(names);
        names = more;
    }
    hf_strv_take(notes, iso->dirs.len == 0
                            ? hf_strdup("No folder is isolated: what the command writes stays.")
                            : hf_asprintf("Isolated is %s: what the command writes elsewhere "
                                          "stays.",
                                          names));
    hf_free(names);
}

static enum hf_rc begin(struct hf_isolate *iso, enum hf_isolate_mode mode,
                        const struct hf_strv *dirs, struct hf_strv *notes, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *head = head_path(iso->work);
    if (hf_fs_exists(head)) {
        enum hf_rc rc = hf_fail(err, HF_EEXISTS, "an interrupted drill was not undone yet");
        return hf_hint(err, rc, "Run 'holdfast drill --recover' first.");
    }
    hf_random_hex(8, iso->id);
    iso->cwd = getcwd(NULL, 0);
    HF_TRY(set_dirs(iso, dirs, notes, err));
    say_what(iso, notes);
    if (mode != HF_ISOLATE_JOURNAL && (geteuid() == 0 || mode == HF_ISOLATE_OVERLAY)) {
        struct hf_err local;
        iso->mode = HF_ISOLATE_OVERLAY;
        enum hf_rc rc = hf_iso_overlay_begin(iso, notes, &local);
        if (rc == HF_OK) {
            return HF_OK;
        }
        if (rc != HF_ENOTSUP || mode == HF_ISOLATE_OVERLAY) {
            return hf_iso_pass(err, &local);
        }
    }
    iso->mode = HF_ISOLATE_JOURNAL;
    return hf_iso_journal_begin(iso, notes, err);
}

enum hf_rc hf_isolate_begin_as(enum hf_isolate_mode mode, const struct hf_strv *dirs,
                               const char *work, struct hf_isolate **ret, struct hf_strv *ret_notes,
                               struct hf_err *err)
{
    HF_TRY(hf_fs_mkdirs(work, 0700, err));
    struct hf_isolate *iso = NULL;
    enum hf_rc rc = open_work(work, &iso, err);
    if (rc == HF_OK) {
        rc = begin(iso, mode, dirs, ret_notes, err);
    }
    if (rc != HF_OK) {
        release(iso);
        return hf_wrap(err, rc, "isolate the folders of the drill");
    }
    *ret = iso;
    return HF_OK;
}

enum hf_rc hf_isolate_begin(const struct hf_strv *dirs, const char *work, struct hf_isolate **ret,
                            struct hf_strv *ret_notes, struct hf_err *err)
{
    return hf_isolate_begin_as(0, dirs, work, ret, ret_notes, err);
}

enum hf_isolate_mode hf_isolate_mode(const struct hf_isolate *iso)
{
    return iso->mode;
}

enum hf_rc hf_isolate_new_machine(struct hf_isolate *iso, struct hf_err *err)
{
    enum hf_rc rc = iso->mode == HF_ISOLATE_OVERLAY ? hf_iso_overlay_new_machine(iso, err)
                                                    : hf_iso_journal_new_machine(iso, err);
    if (rc == HF_OK && iso->cwd != NULL && chdir(iso->cwd) != 0) {
        rc = hf_fail_errno(err, errno, "enter '%s'", iso->cwd);
    }
    return rc == HF_OK ? HF_OK : hf_wrap(err, rc, "make the folders those of a new machine");
}

enum hf_rc hf_isolate_end(struct hf_isolate *iso, struct hf_err *err)
{
    if (iso == NULL) {
        return HF_OK;
    }
    enum hf_rc rc = iso->mode == HF_ISOLATE_OVERLAY ? hf_iso_overlay_end(iso, err)
                                                    : hf_iso_journal_end(iso, err);
    release(iso);
    return rc == HF_OK ? HF_OK : hf_wrap(err, rc, "put the folders back as they were");
}

enum hf_rc hf_isolate_recover(const char *work, bool *ret_undone, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *head = head_path(work);
    if (ret_undone != NULL) {
        *ret_undone = false;
    }
    if (!hf_fs_exists(head)) {
        return HF_OK;
    }
    struct hf_isolate *iso = NULL;
    enum hf_rc rc = open_work(work, &iso, err);
    if (rc == HF_OK && hf_fs_exists(head)) {
        rc = head_read(iso, err);
        if (rc == HF_OK) {
            rc = iso->mode == HF_ISOLATE_OVERLAY ? hf_iso_overlay_recover(iso, err)
                                                 : hf_iso_journal_recover(iso, err);
        }
        if (rc == HF_OK && ret_undone != NULL) {
            *ret_undone = true;
        }
    }
    release(iso);
    return rc == HF_OK ? HF_OK : hf_wrap(err, rc, "undo an interrupted drill");
}

void hf_isolate_kept(const char *work, struct hf_strv *ret)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/isolate.kept", work);
    struct hf_buf b;
    hf_buf_init(&b, HEAD_MAX_BYTES);
    if (hf_fs_read(path, &b, NULL) == HF_OK) {
        size_t pos = 0;
        size_t len = 0;
        for (char *line = NULL; (line = hf_buf_next_line(&b, &pos, &len)) != NULL;) {
            if (hf_fs_exists(line)) {
                hf_strv_add(ret, line);
            }
        }
    }
    hf_buf_release(&b);
}
