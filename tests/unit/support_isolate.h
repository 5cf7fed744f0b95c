/* SPDX-License-Identifier: Apache-2.0
 *
 * For the tests of supervisor/isolate: a tree of every sort of file, a listing of it in every
 * byte, mode and time, and random "attempts" that wreck it.
 */
#ifndef HF_TESTS_SUPPORT_ISOLATE_H
#define HF_TESTS_SUPPORT_ISOLATE_H

#include "base/prelude.h"

#include <sys/types.h>

#include "supervisor/isolate_internal.h"

struct place {
    char *base; /* a temporary folder: base/user is the person's, base/work the drill's */
    char *user;
    char *work;
    struct hf_strv dirs;
    struct hf_strv notes;
};

void tree_ok(int result); /* fails the test with errno's text when negative */
char *tree_at(const char *dir, const char *name);
void tree_put(const char *dir, const char *name, const void *data, size_t len, mode_t mode);
void tree_make(const char *dir);
/* Owned by the caller: a line a path with kind, mode, owner, size, time, target or content. */
char *tree_list(const char *root);
void tree_same(const char *root, const char *before);
/* A visitor of hf_iso_walk: adds every path to the struct hf_strv `user`. */
enum hf_rc tree_gather(void *user, const char *path, bool *descend, struct hf_err *err);
void tree_write(const char *path, unsigned n); /* in place; failures are ignored */
/* Sixty random changes, the same for the same seed, and one file that tells it happened. */
void tree_attempt(const char *dir, unsigned seed);
bool tree_attempted(const char *root);

int place_setup(void **state);
int place_teardown(void **state);
struct hf_isolate *place_begin(struct place *p, enum hf_isolate_mode mode);
bool place_noted(const struct place *p, const char *text);
/* A whole drill in journal mode: two new machines, then the end. */
void place_drill(struct place *p, unsigned seed);
/* Nothing of a drill is left in its folder, but the lock and what recoveries kept. */
void place_clean(const char *work);

void must_be_ok(enum hf_rc rc, const struct hf_err *err);
/* The child ended with 0, or (true) by want_signal. */
bool reap_child(pid_t pid, int want_signal);
/* Runs fn in a child, so that its namespace ends with it; exit status 77 stands for "this
 * machine cannot do it", and gives false. */
bool place_in_child(struct place *p, void (*fn)(struct place *p));

#endif
