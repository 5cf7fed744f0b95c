/* SPDX-License-Identifier: Apache-2.0
 *
 * The address of a Unix socket whose path may be longer than an address. Blocks for one open of
 * a folder. Must not change the working folder, which belongs to every thread.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/sockname.h"

enum hf_rc hf_sockname_open(const char *path, struct hf_sockname *ret, struct hf_err *err)
{
    struct hf_sockname s = {.addr.sun_family = AF_UNIX, .dir = -1};
    size_t len = strlen(path);
    if (len < sizeof s.addr.sun_path) {
        memcpy(s.addr.sun_path, path, len + 1);
        *ret = s;
        return HF_OK;
    }
    const char *slash = strrchr(path, '/');
    if (slash == NULL) {
        return hf_fail(err, HF_EINVAL, "the socket's name '%s' is too long", path);
    }
    HF_CLEANUP(hf_freep) char *folder = hf_strndup(path, (size_t)(slash - path));
    s.dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (s.dir < 0) {
        return hf_fail_errno(err, errno, "open folder '%s'", folder);
    }
    int n = snprintf(s.addr.sun_path, sizeof s.addr.sun_path, "/proc/self/fd/%d%s", s.dir, slash);
    if (n < 0 || (size_t)n >= sizeof s.addr.sun_path) {
        hf_sockname_close(&s);
        return hf_fail(err, HF_EINVAL, "the socket's name '%s' is too long", slash + 1);
    }
    *ret = s;
    return HF_OK;
}

void hf_sockname_close(struct hf_sockname *s)
{
    hf_closep(&s->dir);
    s->dir = -1;
}
