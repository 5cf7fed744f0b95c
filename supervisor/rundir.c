/* SPDX-License-Identifier: Apache-2.0
 *
 * The state folder. Small local files only; nothing here knows a store's inside.
 */
#include "base/prelude.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "base/hash.h"
#include "base/json.h"
#include "supervisor/rundir.h"
#include "supervisor/settings_text.h"

#define RUN_JSON_MAX  16384
#define KEY_NAME_MAX  32
#define LOCK_TRIES    20
#define LOCK_PAUSE_MS 5

char *hf_run_name_of_folder(const char *folder)
{
    const char *slash = strrchr(folder, '/');
    const char *last = slash != NULL && slash[1] != '\0' ? slash + 1 : "run";
    char hash[HF_SHA256_HEX];
    hf_sha256_hex((struct hf_span){folder, strlen(folder)}, hash);
    char base[41];
    size_t n = 0;
    for (const char *p = last; *p != '\0' && n < sizeof(base) - 1; p++) {
        bool ok = isalnum((unsigned char)*p) || (n > 0 && strchr("._-", *p) != NULL);
        base[n] = ok ? *p : '-';
        n += ok || n > 0 ? 1 : 0;
    }
    base[n] = '\0';
    return hf_asprintf("%s-%.4s", n > 0 ? base : "run", hash);
}

/* Sockets lie below it, and their paths must be short: of a long name a part stands for the whole.
 * "~" is in no name. */
static char *key_of(const char *name, const char *store, bool is_default)
{
    char hash[HF_SHA256_HEX];
    HF_CLEANUP(hf_freep) char *key = NULL;
    if (strlen(name) <= KEY_NAME_MAX) {
        key = hf_strdup(name);
    } else {
        hf_sha256_hex((struct hf_span){name, strlen(name)}, hash);
        key = hf_asprintf("%.*s~%.6s", KEY_NAME_MAX - 7, name, hash);
    }
    hf_sha256_hex((struct hf_span){store, strlen(store)}, hash);
    return is_default ? hf_strdup(key) : hf_asprintf("%s@%.6s", key, hash);
}

static enum hf_rc write_registry(const struct hf_rundir *r, struct hf_err *err)
{
    HF_CLEANUP(hf_json_freep) cJSON *obj = hf_json_obj();
    hf_json_add_int(obj, "format", 1);
    hf_json_add_str(obj, "name", r->name);
    hf_json_add_str(obj, "store", r->store);
    hf_json_add_bool(obj, "default_store", r->default_store);
    HF_CLEANUP(hf_freep) char *text = hf_json_print(obj);
    HF_CLEANUP(hf_freep) char *path = hf_rundir_file(r, "run.json");
    return hf_fs_write(path, (struct hf_span){text, strlen(text)}, 0600, false, err);
}

static enum hf_rc load(struct hf_rundir *ret, const char *state, const char *key,
                       struct hf_err *err)
{
    *ret = (struct hf_rundir){.lock_fd = -1};
    ret->state = hf_strdup(state);
    ret->dir = hf_asprintf("%s/runs/%s", state, key);
    HF_CLEANUP(hf_freep) char *path = hf_rundir_file(ret, "run.json");
    struct hf_buf text;
    hf_buf_init(&text, RUN_JSON_MAX);
    HF_CLEANUP(hf_json_freep) cJSON *obj = NULL;
    const char *name = NULL;
    const char *store = NULL;
    enum hf_rc rc = hf_fs_read(path, &text, err);
    if (rc == HF_OK) {
        rc = hf_json_parse(hf_buf_span(&text), RUN_JSON_MAX, &obj, err);
    }
    if (rc == HF_OK) {
        rc = hf_json_get_str(obj, "name", &name, err);
    }
    if (rc == HF_OK) {
        rc = hf_json_get_str(obj, "store", &store, err);
    }
    hf_buf_release(&text);
    if (rc != HF_OK) {
        return hf_wrap(err, rc, "'%s'", path);
    }
    ret->name = hf_strdup(name);
    ret->store = hf_strdup(store);
    ret->default_store = hf_json_opt_bool(obj, "default_store", false);
    return HF_OK;
}

/* What a crash of the machine has left of run.json is written anew. */
static bool is_registered(const struct hf_rundir *r, const char *key)
{
    struct hf_rundir there;
    bool same = load(&there, r->state, key, NULL) == HF_OK && strcmp(there.name, r->name) == 0 &&
                strcmp(there.store, r->store) == 0;
    hf_rundir_release(&there);
    return same;
}

enum hf_rc hf_rundir_open(struct hf_rundir *ret, const char *state, const char *name,
                          const char *store, struct hf_err *err)
{
    *ret = (struct hf_rundir){.lock_fd = -1};
    ret->state = hf_strdup(state);
    ret->name = hf_strdup(name);
    HF_CLEANUP(hf_freep) char *default_uri = hf_asprintf("file://%s/store", state);
    ret->default_store = store == NULL || strcmp(store, default_uri) == 0;
    ret->store = hf_strdup(ret->default_store ? default_uri : store);
    HF_CLEANUP(hf_freep) char *key = key_of(name, ret->store, ret->default_store);
    ret->dir = hf_asprintf("%s/runs/%s", state, key);
    enum hf_rc rc = hf_fs_mkdirs(ret->dir, 0700, err);
    if (rc != HF_OK) {
        hf_hint(err, rc, "Point --state-dir (HOLDFAST_STATE_DIR) at a folder that you can write.");
        return rc;
    }
    return is_registered(ret, key) ? HF_OK : write_registry(ret, err);
}

static int by_name(const void *a, const void *b)
{
    const struct hf_rundir *x = a;
    const struct hf_rundir *y = b;
    return strcmp(x->dir, y->dir);
}

enum hf_rc hf_rundir_all(const char *state, struct hf_rundir **ret, size_t *ret_n,
                         struct hf_err *err)
{
    *ret = NULL;
    *ret_n = 0;
    HF_CLEANUP(hf_freep) char *runs = hf_asprintf("%s/runs", state);
    DIR *d = opendir(runs);
    if (d == NULL) {
        return errno == ENOENT ? HF_OK : hf_fail_errno(err, errno, "open folder '%s'", runs);
    }
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        struct hf_rundir one;
        if (e->d_name[0] == '.') {
            continue;
        }
        /* A folder without a readable run.json is no run: it is left alone and not listed. */
        if (load(&one, state, e->d_name, NULL) != HF_OK) {
            hf_rundir_release(&one);
            continue;
        }
        *ret = hf_realloc(*ret, (*ret_n + 1) * sizeof(one));
        (*ret)[(*ret_n)++] = one;
    }
    closedir(d);
    if (*ret_n > 1) {
        qsort(*ret, *ret_n, sizeof(**ret), by_name);
    }
    return HF_OK;
}

static enum hf_rc not_found(const char *name, const struct hf_rundir *all, size_t n,
                            struct hf_err *err)
{
    struct hf_buf names;
    hf_buf_init(&names, 150);
    for (size_t i = 0; i < n; i++) {
        if (hf_buf_addf(&names, NULL, "%s%s", i > 0 ? ", " : "", all[i].name) != HF_OK) {
            break;
        }
    }
    enum hf_rc rc = hf_fail(err, HF_ENOTFOUND, "no run '%s' is registered here", name);
    if (n > 0) {
        hf_hint(err, rc, "Registered runs: %s.", hf_buf_str(&names));
    } else {
        hf_hint(err, rc, "No run was started yet with this state folder (--state-dir).");
    }
    hf_buf_release(&names);
    return rc;
}

enum hf_rc hf_rundir_find(struct hf_rundir *ret, const char *state, const char *name,
                          const char *store, struct hf_err *err)
{
    *ret = (struct hf_rundir){.lock_fd = -1};
    struct hf_rundir *all = NULL;
    size_t n = 0;
    HF_TRY(hf_run_name_check(name, err));
    HF_TRY(hf_rundir_all(state, &all, &n, err));
    size_t hits = 0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(all[i].name, name) == 0 && (store == NULL || strcmp(all[i].store, store) == 0)) {
            hits++;
            at = i;
        }
    }
    enum hf_rc rc = HF_OK;
    if (hits == 0) {
        rc = not_found(name, all, n, err);
    } else if (hits > 1) {
        rc = hf_fail(err, HF_EINVAL, "%zu runs named '%s' are registered here", hits, name);
        hf_hint(err, rc, "Say which with --store URI.");
    } else {
        *ret = all[at];
        all[at] = (struct hf_rundir){.lock_fd = -1};
    }
    for (size_t i = 0; i < n; i++) {
        hf_rundir_release(&all[i]);
    }
    hf_free(all);
    return rc;
}

void hf_rundir_release(struct hf_rundir *r)
{
    hf_free(r->state);
    hf_free(r->name);
    hf_free(r->store);
    hf_free(r->dir);
    hf_closep(&r->lock_fd);
    *r = (struct hf_rundir){.lock_fd = -1};
}

enum hf_rc hf_rundir_lock(struct hf_rundir *r, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *path = hf_rundir_file(r, "lock");
    enum hf_rc rc = hf_fs_lock(path, &r->lock_fd, err);
    for (int i = 0; i < LOCK_TRIES && rc == HF_EAGAIN; i++) {
        (void)poll(NULL, 0, LOCK_PAUSE_MS); /* somebody may only be looking */
        rc = hf_fs_lock(path, &r->lock_fd, err);
    }
    if (rc == HF_OK) {
        /* For the one that finds it locked; who reads a stale text here has the lock itself. */
        char utc[HF_UTC_STRLEN];
        char text[64];
        int len =
            snprintf(text, sizeof(text), "%d %s\n", getpid(), hf_utc_format(hf_wall_ms(), utc));
        if (ftruncate(r->lock_fd, 0) == 0 && len > 0) {
            ssize_t n = pwrite(r->lock_fd, text, (size_t)len, 0);
            (void)n; /* a full disk: it is then not known who has it */
        }
    }
    return rc;
}

char *hf_rundir_owner(const struct hf_rundir *r)
{
    HF_CLEANUP(hf_freep) char *path = hf_rundir_file(r, "lock");
    HF_CLEANUP(hf_freep) char *status_path = hf_rundir_file(r, "status.json");
    HF_CLEANUP(hf_json_freep) cJSON *status = NULL;
    struct hf_buf text;
    hf_buf_init(&text, RUN_JSON_MAX);
    long pid = 0;
    char *owner = NULL;
    if (hf_fs_read(path, &text, NULL) == HF_OK) {
        char *end = NULL;
        pid = strtol(hf_buf_str(&text), &end, 10);
        if (pid > 0 && *end == ' ') {
            owner = hf_asprintf("pid %ld, since %.*s", pid, (int)strcspn(end + 1, "\n"), end + 1);
        }
    }
    hf_buf_reset(&text);
    if (owner != NULL && hf_fs_read(status_path, &text, NULL) == HF_OK &&
        hf_json_parse(hf_buf_span(&text), RUN_JSON_MAX, &status, NULL) == HF_OK &&
        hf_json_opt_int(status, "supervisor_pid", 0) == pid) {
        char *more = hf_asprintf("%s, attempt %lld", owner,
                                 (long long)hf_json_opt_int(status, "attempt", 0));
        hf_free(owner);
        owner = more;
    }
    hf_buf_release(&text);
    return owner;
}

/* Shared, so that two who look at once do not take each other for a supervisor. */
bool hf_rundir_is_locked(const struct hf_rundir *r)
{
    HF_CLEANUP(hf_freep) char *path = hf_rundir_file(r, "lock");
    HF_CLEANUP(hf_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

char *hf_rundir_attempt(const struct hf_rundir *r, uint32_t attempt)
{
    return hf_asprintf("%s/%u", r->dir, attempt);
}

char *hf_rundir_file(const struct hf_rundir *r, const char *name)
{
    return hf_asprintf("%s/%s", r->dir, name);
}

char *hf_path_from(const char *folder, const char *path)
{
    char *out = path[0] == '/' ? hf_strdup(path) : hf_asprintf("%s/%s", folder, path);
    size_t n = 0; /* never ahead of what is read */
    for (const char *p = out; *p != '\0';) {
        size_t len = strcspn(p, "/");
        if (len == 2 && strncmp(p, "..", 2) == 0) {
            while (n > 0 && out[--n] != '/') {
            }
        } else if (len > 0 && !(len == 1 && *p == '.')) {
            out[n++] = '/';
            memmove(out + n, p, len);
            n += len;
        }
        p += len + strspn(p + len, "/");
    }
    if (n == 0) {
        out[n++] = '/';
    }
    out[n] = '\0';
    return out;
}
