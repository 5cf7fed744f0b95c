/* SPDX-License-Identifier: Apache-2.0
 *
 * Files: whole-file reads with a maximum, writes that are either the old or the new content
 * after any crash, folders, locks. All calls block; use them on workers, or on the loop thread
 * for small local files only. Each call is a fault point of test builds (base/fault.h, domain
 * "file").
 */
#ifndef HF_BASE_FSX_H
#define HF_BASE_FSX_H

#include "base/prelude.h"

#include <sys/types.h>

#include "base/buf.h"

/* Appends the whole file to *b; HF_EFULL if it is longer than b allows. HF_ENOTFOUND when it is
 * missing. */
enum hf_rc hf_fs_read(const char *path, struct hf_buf *b, struct hf_err *err) HF_MUST_USE;

/* Writes a temporary file in the same folder, flushes it if `sync`, and renames it over `path`.
 * On failure the old content stands and no temporary file is left. */
enum hf_rc hf_fs_write(const char *path, struct hf_span data, mode_t mode, bool sync,
                       struct hf_err *err) HF_MUST_USE;

/* mkdir -p; parents that exist are left alone. HF_EEXISTS names a component that is not a
 * folder. */
enum hf_rc hf_fs_mkdirs(const char *path, mode_t mode, struct hf_err *err) HF_MUST_USE;

/* Appends to a file (created 0600 if needed) with one write(2). */
enum hf_rc hf_fs_append(const char *path, struct hf_span data, struct hf_err *err) HF_MUST_USE;

enum hf_rc hf_fs_sync_dir(const char *path, struct hf_err *err) HF_MUST_USE;

/* Removes a file or a whole tree, links not followed; a missing path is success. */
enum hf_rc hf_fs_remove_tree(const char *path, struct hf_err *err) HF_MUST_USE;

/* Opens (creating) and takes an exclusive flock without waiting: HF_EAGAIN when another holds it.
 * *ret_fd is close-on-exec; closing it gives the lock back. */
enum hf_rc hf_fs_lock(const char *path, int *ret_fd, struct hf_err *err) HF_MUST_USE;

bool hf_fs_exists(const char *path);

/* write(2) until all is out, EINTR included. */
enum hf_rc hf_fs_write_all(int fd, struct hf_span data, const char *what,
                           struct hf_err *err) HF_MUST_USE;

#endif
