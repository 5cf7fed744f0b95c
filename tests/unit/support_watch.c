/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints made by hand for the tests of watched folders.
 */
#include "base/prelude.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_watch.h"

static void model(const char *folder)
{
    static const char header[] =
        "{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}      ";
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/model.safetensors", folder);
    char data[256] = {0};
    uint64_t len = sizeof(header) - 1;
    memcpy(data, &len, sizeof(len));
    memcpy(data + sizeof(len), header, len);
    put_file(path, data, sizeof(len) + len + 4);
}

void watch_hf(const char *dir, int step, bool whole)
{
    static const char *const more[] = {"optimizer.pt", "scheduler.pt", "rng_state.pth"};
    HF_CLEANUP(hf_freep) char *folder = hf_asprintf("%s/checkpoint-%d", dir, step);
    model(folder);
    for (size_t i = 0; i < HF_COUNT(more); i++) {
        HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", folder, more[i]);
        char end[22] = {'P', 'K', 5, 6}; /* the smallest zip there is */
        put_file(path, end, sizeof(end));
    }
    if (whole) {
        watch_hf_finish(dir, step);
    }
}

void watch_hf_finish(const char *dir, int step)
{
    HF_CLEANUP(hf_freep)
    char *path = hf_asprintf("%s/checkpoint-%d/trainer_state.json", dir, step);
    HF_CLEANUP(hf_freep) char *text = hf_asprintf("{\"global_step\":%d}", step);
    put_text(path, text);
}

void watch_odd(const char *dir, const char *name, const char *text)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", dir, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

void next_tick(const char *path)
{
    struct stat st;
    struct timespec now;
    assert_int_equal(lstat(path, &st), 0);
    do {
        (void)poll(NULL, 0, 1);
        assert_int_equal(clock_gettime(CLOCK_REALTIME_COARSE, &now), 0);
    } while (now.tv_sec < st.st_mtim.tv_sec ||
             (now.tv_sec == st.st_mtim.tv_sec && now.tv_nsec <= st.st_mtim.tv_nsec));
}
