/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded by a test: the wall clock of a program is off by as many seconds as a file says, at
 * once when the file changes. The monotonic clocks are left alone, as when somebody sets the time.
 */
#include "base/prelude.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *ts)
{
    int rc = (int)syscall(SYS_clock_gettime, id, ts);
    const char *file = getenv("SHIFT_CLOCK");
    if (rc != 0 || file == NULL || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) {
        return rc;
    }
    char text[32] = "";
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, text, sizeof(text) - 1);
        (void)n;
        close(fd);
    }
    ts->tv_sec += strtol(text, NULL, 10);
    return 0;
}
