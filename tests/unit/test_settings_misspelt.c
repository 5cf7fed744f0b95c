/* SPDX-License-Identifier: Apache-2.0
 *
 * Misspelt flags: what "Did you mean" names is one of the nearest flags of that very command, by a
 * distance computed here, and nothing is named only where all are far.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "supervisor/settings.h"

/* Edit distance with swaps of neighbours, the plain recursion over a whole table. */
static size_t distance(const char *a, const char *b)
{
    static size_t d[64][64];
    size_t n = strlen(a);
    size_t m = strlen(b);
    for (size_t i = 0; i <= n; i++) {
        for (size_t j = 0; j <= m; j++) {
            size_t best = i == 0 ? j : j == 0 ? i : d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (i > 0 && j > 0) {
                best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
                best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
            }
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best) {
                best = d[i - 2][j - 2] + 1;
            }
            d[i][j] = best;
        }
    }
    return d[n][m];
}

/* The named flag must be one of the nearest; silence only where the word is far from all. */
static bool misspelt(unsigned command, const char *name)
{
    if (name[0] == '\0' || name[0] == '=' || strcmp(name, "help") == 0 ||
        strncmp(name, "no-", 3) == 0 || hf_settings_find(name) != HF_SET_MAX) {
        return false;
    }
    HF_CLEANUP(hf_freep) char *flag = hf_asprintf("--%s", name);
    struct hf_settings_in in = {
        .command = command, .argv = (char *[]){flag, NULL}, .env = (char *[]){NULL}};
    struct hf_settings *s = hf_settings_new();
    struct hf_err err = {0};
    size_t best = distance(name, "help");
    for (int id = 0; id < HF_SET_MAX; id++) {
        if ((hf_settings_table[id].commands & command) != 0) {
            size_t far = distance(name, hf_settings_table[id].name);
            best = far < best ? far : best;
        }
    }
    assert_int_equal(hf_settings_load(s, &in, &err), HF_EINVAL);
    const char *said = strstr(err.hint, "mean '--");
    size_t limit = strlen(name) / 3 > 1 ? strlen(name) / 3 : 1;
    if (said != NULL) {
        char got[64] = "";
        (void)sscanf(said + 8, "%63[^']", got);
        if (distance(name, got) != best || best > limit) {
            fail_msg("'%s': '%s' is meant? the nearest is %zu away", name, got, best);
        }
        assert_true(strcmp(got, "help") == 0 ||
                    (hf_settings_table[hf_settings_find(got)].commands & command) != 0);
    } else if (best <= limit && strstr(err.hint, "belongs") == NULL) {
        fail_msg("'%s': nothing is meant, and the nearest is %zu away", name, best);
    }
    hf_settings_free(s);
    return true;
}

/* `name` with one more fault at a letter: 0 gone, 1 doubled, 2 swapped with the next, 3 another, 4
 * a hyphen before it, 5 it and the next gone. */
static void spoil(char out[64], const char *name, size_t at, int how)
{
    size_t len = strlen(name);
    size_t gone = how == 5 ? 2 : how == 0 || how == 3 ? 1 : 0;
    const char *rest = name + (at + gone < len ? at + gone : len);
    const char twice[] = {name[at], '\0'};
    const char *added = how == 1 ? twice : how == 3 ? "q" : how == 4 ? "-" : "";
    (void)snprintf(out, 64, "%.*s%s%s", (int)at, name, added, rest);
    if (how == 2 && at + 1 < len) {
        out[at] = name[at + 1];
        out[at + 1] = name[at];
    }
}

/* All flags of all commands, spoilt at every letter once, and once more at every third. */
static void test_misspelt_flags(void **state)
{
    (void)state;
    size_t tried = 0;
    for (unsigned command = HF_FOR_RUN; command <= HF_FOR_LOGS; command <<= 1) {
        for (int id = 0; id < HF_SET_MAX; id++) {
            const char *name = hf_settings_table[id].name;
            bool mine = (hf_settings_table[id].commands & command) != 0;
            for (size_t at = 0; mine && at < 6 * strlen(name); at++) {
                char once[64];
                char twice[64];
                spoil(once, name, at / 6, (int)(at % 6));
                tried += misspelt(command, once);
                for (size_t i = at % 3; i < strlen(once); i += 3) {
                    spoil(twice, once, i, (int)(i + at) % 6);
                    tried += misspelt(command, twice);
                }
            }
        }
    }
    assert_true(tried > 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_misspelt_flags)};
    return cmocka_run_group_tests_name("settings_misspelt", tests, NULL, NULL);
}
