/* SPDX-License-Identifier: Apache-2.0
 *
 * Unix sockets in folders of any depth. A socket's address holds 107 bytes; a longer path is
 * reached through an open descriptor of its folder, as /proc/self/fd/N/NAME. Any thread.
 */
#ifndef HF_BASE_SOCKNAME_H
#define HF_BASE_SOCKNAME_H

#include "base/prelude.h"

#include <sys/socket.h>
#include <sys/un.h>

#include "base/err.h"

struct hf_sockname {
    struct sockaddr_un addr; /* for bind and connect, as long as `dir` is open */
    int dir;                 /* the folder, where the path is long; else -1 */
};

/* path: absolute. On failure nothing is open: the folder is missing (HF_ENOTFOUND), or the name
 * alone is longer than an address (HF_EINVAL). */
enum hf_rc hf_sockname_open(const char *path, struct hf_sockname *ret,
                            struct hf_err *err) HF_MUST_USE;
void hf_sockname_close(struct hf_sockname *s); /* errno is kept */

#endif
