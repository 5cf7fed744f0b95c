/* SPDX-License-Identifier: Apache-2.0
 *
 * How much room a filesystem has, and what that means for checkpoints of a known size. Worker
 * threads for the look; it writes nothing.
 */
#include "base/prelude.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/mem.h"
#include "supervisor/disk.h"

#define FULL_TENTHS 9
#define FULL_FIT    10

/* Cuts the last part off; false: nothing is left to cut. */
static bool step_up(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash == NULL || path[1] == '\0') {
        return false;
    }
    slash[slash == path ? 1 : 0] = '\0';
    return true;
}

enum hf_rc hf_disk_look(const char *path, struct hf_disk *ret, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *at = hf_strdup(path);
    struct stat st;
    struct statvfs fs;
    while (stat(at, &st) != 0) {
        if ((errno != ENOENT && errno != ENOTDIR) || !step_up(at)) {
            return hf_fail_errno(err, errno, "look at '%s'", at);
        }
    }
    if (statvfs(at, &fs) != 0) {
        return hf_fail_errno(err, errno, "look at the filesystem of '%s'", at);
    }
    *ret = (struct hf_disk){.device = st.st_dev,
                            .free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize,
                            .total_bytes = (uint64_t)fs.f_blocks * fs.f_frsize};
    return HF_OK;
}

enum hf_disk_word hf_disk_judge(const struct hf_disk *d, uint64_t need)
{
    if (need == 0) {
        return HF_DISK_FINE;
    }
    uint64_t fit = d->free_bytes / need;
    if (fit < 2) {
        return HF_DISK_LOW;
    }
    uint64_t tenth = d->total_bytes / 10;
    return d->free_bytes <= tenth * (10 - FULL_TENTHS) && fit < FULL_FIT ? HF_DISK_FULL
                                                                         : HF_DISK_FINE;
}

bool hf_disk_is_short(const struct hf_disk *d, uint64_t need)
{
    return need > 0 && (d->free_bytes < need || d->free_bytes - need < need / 10);
}
