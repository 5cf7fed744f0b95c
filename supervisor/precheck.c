/* SPDX-License-Identifier: Apache-2.0
 *
 * Mistakes that need no loop, no store and no claim to be seen. Main thread; nothing is created
 * or changed here.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cloud/store.h"
#include "supervisor/precheck.h"

/* "--store", "HOLDFAST_STORE" or "holdfast.yaml:3:8: store", for messages. */
static const char *said_where(const struct hf_settings *s, enum hf_set_id id)
{
    const char *where = hf_set_where(s, id);
    return where[0] != '\0' ? where : hf_settings_table[id].name;
}

static enum hf_rc must_not_be_file(const struct hf_settings *s, enum hf_set_id id, const char *path,
                                   struct hf_err *err)
{
    struct stat st;
    if (path == NULL || stat(path, &st) != 0 || S_ISDIR(st.st_mode)) {
        return HF_OK;
    }
    return hf_hint(
        err, hf_fail(err, HF_EINVAL, "%s: '%s' is not a folder", said_where(s, id), path),
        id == HF_SET_CHECKPOINT_DIR ? "Name the folder that the training program saves into."
                                    : "Name a folder; it is made if it is not there.");
}

/* A folder that may come later, but could then be read as far as can be told now. */
static enum hf_rc must_be_watchable(const struct hf_settings *s, const char *path,
                                    struct hf_err *err)
{
    struct stat st;
    HF_TRY(must_not_be_file(s, HF_SET_CHECKPOINT_DIR, path, err));
    bool there = stat(path, &st) == 0;
    if (there ? faccessat(AT_FDCWD, path, R_OK | X_OK, AT_EACCESS) == 0 : errno == ENOENT) {
        return HF_OK;
    }
    const char *where = said_where(s, HF_SET_CHECKPOINT_DIR);
    enum hf_rc rc = errno == ENOTDIR
                        ? hf_fail(err, HF_EINVAL, "%s: '%s' lies below a file", where, path)
                        : hf_fail_errno(err, errno, "%s: read '%s'", where, path);
    return hf_hint(err, rc,
                   "Name the folder that the training program saves into, and that this "
                   "user may read.");
}

static enum hf_rc must_not_be_folder(const struct hf_settings *s, enum hf_set_id id,
                                     struct hf_err *err)
{
    const char *path = hf_set_str(s, id);
    struct stat st;
    if (path == NULL || stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        return HF_OK;
    }
    return hf_hint(
        err, hf_fail(err, HF_EINVAL, "%s: '%s' is a folder, not a file", said_where(s, id), path),
        "Name a file in it.");
}

static enum hf_rc check_endpoint(const struct hf_settings *s, struct hf_err *err)
{
    const char *url = hf_set_str(s, HF_SET_METADATA_ENDPOINT);
    if (url == NULL || strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0) {
        return HF_OK;
    }
    return hf_hint(err,
                   hf_fail(err, HF_EINVAL, "%s: '%s' is not a URL",
                           said_where(s, HF_SET_METADATA_ENDPOINT), url),
                   "Write it as http://HOST[:PORT].");
}

enum hf_rc hf_precheck(const struct hf_settings *s, char *const *argv, struct hf_err *err)
{
    if (argv[0] != NULL && argv[0][0] == '\0') {
        return hf_hint(err, hf_fail(err, HF_EINVAL, "the command's first word is empty"),
                       "A variable in it may be unset.");
    }
    const char *store = hf_set_str(s, HF_SET_STORE);
    if (store != NULL) {
        enum hf_rc rc = hf_store_uri_check(store, err);
        HF_TRY(hf_wrap(err, rc, "%s", said_where(s, HF_SET_STORE)));
    }
    const struct hf_strv *dirs = hf_set_list(s, HF_SET_CHECKPOINT_DIR);
    for (size_t i = 0; i < dirs->len; i++) {
        HF_TRY(must_be_watchable(s, dirs->items[i], err));
    }
    HF_TRY(must_not_be_file(s, HF_SET_SAVE_DIR, hf_set_str(s, HF_SET_SAVE_DIR), err));
    HF_TRY(must_not_be_file(s, HF_SET_STATE_DIR, hf_set_str(s, HF_SET_STATE_DIR), err));
    HF_TRY(must_not_be_folder(s, HF_SET_DONE_FILE, err));
    HF_TRY(must_not_be_folder(s, HF_SET_NOTICE_FILE, err));
    HF_TRY(must_not_be_folder(s, HF_SET_METRICS_FILE, err));
    return check_endpoint(s, err);
}
