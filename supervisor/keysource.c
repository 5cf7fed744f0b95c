/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a key file or a passphrase. Main thread. The bytes pass through one buffer on the stack,
 * which is wiped, into locked memory.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/secret.h"
#include "checkpoint/lineage.h"
#include "supervisor/keysource.h"

/* A passphrase and the end of its line, and one byte to see that there is more. */
#define ROOM (HF_PASSPHRASE_MAX + 3)

/* The descriptor of "fd:N"; -1: it is a path. */
static int fd_of(const char *text)
{
    if (strncmp(text, "fd:", 3) != 0 || strspn(text + 3, "0123456789") != strlen(text + 3)) {
        return -1;
    }
    char *end = NULL;
    unsigned long n = strtoul(text + 3, &end, 10);
    return end == text + 3 || n > INT_MAX ? -1 : (int)n;
}

/* Others on the machine must not be able to read it. */
static enum hf_rc check_private(int fd, const char *path, struct hf_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return hf_fail_errno(err, errno, "look at '%s'", path);
    }
    if (S_ISDIR(st.st_mode)) {
        return hf_fail(err, HF_EINVAL, "'%s' is a folder", path);
    }
    if ((st.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        enum hf_rc rc = hf_fail(err, HF_EDENIED, "'%s' can be used by others than its owner (%04o)",
                                path, (unsigned)(st.st_mode & 07777));
        return hf_hint(err, rc, "chmod 600 '%s', and think of a new key if others could read it.",
                       path);
    }
    return HF_OK;
}

static enum hf_rc read_fd(int fd, const char *what, unsigned char room[ROOM], size_t *ret_len,
                          struct hf_err *err)
{
    size_t len = 0;
    while (len < ROOM) {
        ssize_t n = read(fd, room + len, ROOM - len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return hf_fail_errno(err, errno, "read '%s'", what);
        }
        if (n == 0) {
            break;
        }
        len += (size_t)n;
    }
    *ret_len = len;
    return HF_OK;
}

static enum hf_rc read_secret(const char *path, bool may_be_fd, unsigned char room[ROOM],
                              size_t *ret_len, struct hf_err *err)
{
    int given = may_be_fd ? fd_of(path) : -1;
    if (given >= 0) {
        enum hf_rc rc = read_fd(given, path, room, ret_len, err);
        if (given > STDERR_FILENO) {
            close(given); /* the command must not inherit it */
        }
        return rc;
    }
    HF_CLEANUP(hf_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        return hf_fail_errno(err, errno, "open '%s'", path);
    }
    HF_TRY(check_private(fd, path, err));
    return read_fd(fd, path, room, ret_len, err);
}

static size_t without_line_end(const unsigned char *room, size_t len)
{
    len -= len > 0 && room[len - 1] == '\n' ? 1 : 0;
    return len - (len > 0 && room[len - 1] == '\r' ? 1 : 0);
}

static enum hf_rc take_passphrase(const unsigned char room[ROOM], size_t len,
                                  struct hf_unlock **ret, struct hf_err *err)
{
    size_t n = without_line_end(room, len);
    if (n == 0) {
        return hf_fail(err, HF_EINVAL, "the passphrase is empty");
    }
    if (n > HF_PASSPHRASE_MAX || memchr(room, '\0', n) != NULL) {
        enum hf_rc rc = hf_fail(err, HF_EINVAL,
                                "that is no passphrase: it has a NUL, or more than "
                                "%d bytes",
                                HF_PASSPHRASE_MAX);
        return hf_hint(err, rc, "A file of random bytes is for --key-file.");
    }
    *ret = hf_unlock_new(HF_UNLOCK_PASSPHRASE, (struct hf_span){.ptr = room, .len = n});
    return HF_OK;
}

static int digit_of(unsigned char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool from_hex(const unsigned char *hex, unsigned char *out)
{
    for (size_t i = 0; i < HF_KEY_FILE_BYTES; i++) {
        int high = digit_of(hex[2 * i]);
        int low = digit_of(hex[2 * i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        out[i] = (unsigned char)(high * 16 + low);
    }
    return true;
}

static enum hf_rc take_key(const unsigned char room[ROOM], size_t len, struct hf_unlock **ret,
                           struct hf_err *err)
{
    unsigned char key[HF_KEY_FILE_BYTES];
    bool ok = len == sizeof(key);
    if (ok) {
        memcpy(key, room, sizeof(key));
    } else if (without_line_end(room, len) == 2 * sizeof(key)) {
        ok = from_hex(room, key);
    }
    if (ok) {
        *ret = hf_unlock_new(HF_UNLOCK_KEY_FILE, (struct hf_span){.ptr = key, .len = sizeof(key)});
    }
    hf_wipe(key, sizeof(key));
    if (ok) {
        return HF_OK;
    }
    enum hf_rc rc =
        hf_fail(err, HF_EINVAL, "that is no key: it must have 32 bytes, or 64 hex digits");
    return hf_hint(err, rc, "Make one with: (umask 077; head -c 32 /dev/urandom > FILE).");
}

static enum hf_rc load(const char *path, enum hf_unlock_kind kind, struct hf_unlock **ret,
                       struct hf_err *err)
{
    unsigned char room[ROOM];
    size_t len = 0;
    enum hf_rc rc = read_secret(path, kind == HF_UNLOCK_PASSPHRASE, room, &len, err);
    if (rc == HF_OK) {
        rc = kind == HF_UNLOCK_PASSPHRASE ? take_passphrase(room, len, ret, err)
                                          : take_key(room, len, ret, err);
    }
    hf_wipe(room, sizeof(room));
    return rc;
}

enum hf_rc hf_keysource_load(const struct hf_settings *set, struct hf_unlock **ret,
                             struct hf_err *err)
{
    enum hf_set_id id = HF_SET_KEY_FILE;
    enum hf_set_id other = HF_SET_KEY_PASSPHRASE_FILE;
    *ret = NULL;
    if (!hf_set_given(set, id) && !hf_set_given(set, other)) {
        return HF_OK;
    }
    if (hf_set_given(set, id) && hf_set_given(set, other) &&
        hf_set_origin(set, id) == hf_set_origin(set, other)) {
        return hf_fail(err, HF_EINVAL, "%s and %s: a run has one of them", hf_set_where(set, id),
                       hf_set_where(set, other));
    }
    bool file = hf_set_given(set, id) &&
                (!hf_set_given(set, other) || hf_set_origin(set, id) > hf_set_origin(set, other));
    id = file ? id : other;
    enum hf_rc rc =
        load(hf_set_str(set, id), file ? HF_UNLOCK_KEY_FILE : HF_UNLOCK_PASSPHRASE, ret, err);
    return rc == HF_OK ? rc : hf_wrap(err, rc, "%s", hf_set_where(set, id));
}

enum hf_rc hf_keysource_unlock(const struct hf_settings *set, struct hf_run *run,
                               struct hf_err *err)
{
    struct hf_unlock *key = NULL;
    HF_TRY(hf_keysource_load(set, &key, err));
    enum hf_rc rc = hf_run_unlock(run, key, NULL, err);
    hf_unlock_free(key);
    return rc;
}
