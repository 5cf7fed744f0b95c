/* SPDX-License-Identifier: Apache-2.0
 *
 * Holdfast's commands called in the test's own process, with what they wrote to stdout and stderr.
 * Only those that start nothing: status, ckpt, logs, help.
 */
#ifndef HF_TESTS_SUPPORT_CMD_H
#define HF_TESTS_SUPPORT_CMD_H

#include "base/prelude.h"

#include <cjson/cJSON.h>

struct told {
    int status;
    char *out, *err;
};

/* The words after "holdfast", NULL at the end; settings files and the environment have no say. */
struct told tell(const char *const *words);
#define TELL(...) tell((const char *const[]){__VA_ARGS__, NULL})
void told_release(struct told *t);

/* Fails with all that was said unless this is the exit status. */
void told_status(const struct told *t, int status);
/* Fails unless the part is in the text. */
void must_say(const char *text, const char *part);
void must_not_say(const char *text, const char *part);
/* The JSON that it printed; freed by the caller. */
cJSON *told_json(const struct told *t);

/* The text with what the clock decides made the same: "2026-...Z" is TIME, "0.4 s ago" and
 * "3m12s ago" are AGE. Owned by the caller. */
char *without_times(const char *text);

#endif
