/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: a settings file, and the same bytes as each text form below it. What was read
 * must be printable as a message and must not crash. One thread.
 */
#include "base/prelude.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "supervisor/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_settings(const char *path)
{
    struct hf_settings *s = hf_settings_new();
    struct hf_err err = {0};
    enum hf_rc rc = hf_settings_file(s, path, "/home/u", &err);
    if (rc != HF_OK && (err.code != rc || err.msg[0] == '\0' || strchr(err.msg, '\n') != NULL)) {
        abort();
    }
    hf_settings_free(s);
}

/* Once as YAML and once, by a name that says so, as JSON. */
static void read_as_file(const uint8_t *data, size_t size)
{
    int fd = memfd_create("settings", MFD_CLOEXEC);
    char path[32];
    char json[48];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    (void)snprintf(json, sizeof json, "/tmp/hf-fuzz-%d.json", (int)getpid());
    if (fd < 0 || write(fd, data, size) != (ssize_t)size || symlink(path, json) != 0) {
        abort();
    }
    read_settings(path);
    read_settings(json);
    (void)unlink(json);
    (void)close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_as_file(data, size);
    char *text = malloc(size + 1);
    if (text == NULL) {
        abort();
    }
    memcpy(text, data, size);
    text[size] = '\0';
    static const char *const names[] = {"run", "drill", "checkpoint-dir", NULL};
    struct hf_strv words = {0};
    int64_t number = 0;
    int sig = 0;
    uint64_t ms = 0;
    (void)hf_nearest(text, names);
    if (hf_words_split(text, &words, NULL) != HF_OK && words.len != 0) {
        abort();
    }
    if (hf_bytes_parse(text, &number, NULL) == HF_OK && number < 0) {
        abort();
    }
    if (hf_signal_parse(text, &sig, NULL) == HF_OK && sig <= 0) {
        abort();
    }
    char back[HF_DURATION_STRLEN];
    uint64_t again = 0;
    if (hf_duration_parse(text, &ms, NULL) == HF_OK &&
        (hf_duration_parse(hf_duration_format(ms, back), &again, NULL) != HF_OK || again != ms)) {
        abort();
    }
    hf_strv_clear(&words);
    free(text);
    return 0;
}
