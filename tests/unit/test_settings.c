/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings: the table itself, every text form with its bounds and messages, flags, environment,
 * files with positions, precedence, and the word splitter and nearest match below them.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "base/log.h"
#include "supervisor/settings.h"

/* Each test runs in a folder of its own, so that no settings file of the tester is read. */
static char folder[64];

static int enter_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/hf-settings-XXXXXX");
    return mkdtemp(folder) != NULL && chdir(folder) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
    (void)state;
    return chdir("/") == 0 && hf_fs_remove_tree(folder, NULL) == HF_OK ? 0 : -1;
}

static void put_file(const char *path, const char *text)
{
    struct hf_err err = {0};
    struct hf_span span = {text, strlen(text)};
    assert_int_equal(hf_fs_write(path, span, 0600, false, &err), HF_OK);
}

#define ARGS(...) ((char *[]){__VA_ARGS__, NULL})
static char *const home_only[] = {"HOME=/home/u", NULL};

static enum hf_rc load(struct hf_settings *s, unsigned command, char *const *argv, char *const *env,
                       struct hf_err *err)
{
    bool mixed = command != HF_FOR_RUN && command != HF_FOR_DRILL;
    struct hf_settings_in in = {.command = command, .argv = argv, .env = env, .mixed = mixed};
    return hf_settings_load(s, &in, err);
}

/* Loads for `run`; asserts success. */
static struct hf_settings *loaded(char *const *argv, char *const *env)
{
    struct hf_settings *s = hf_settings_new();
    struct hf_err err = {0};
    enum hf_rc rc = load(s, HF_FOR_RUN, argv, env, &err);
    if (rc != HF_OK) {
        fail_msg("%s", err.msg);
    }
    return s;
}

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("'%s' is not in '%s'", part, text);
    }
}

/* Expects HF_EINVAL with these words in message and hint. */
static void refused(unsigned command, char *const *argv, char *const *env, const char *msg,
                    const char *hint)
{
    struct hf_settings *s = hf_settings_new();
    struct hf_err err = {0};
    assert_int_equal(load(s, command, argv, env, &err), HF_EINVAL);
    assert_contains(err.msg, msg);
    assert_contains(err.hint, hint);
    hf_settings_free(s);
}

static void test_table(void **state)
{
    (void)state;
    static const char *const taken[] = {
        "HOLDFAST_RUN",     "HOLDFAST_ATTEMPT", "HOLDFAST_RESUME",    "HOLDFAST_RESUME_STEP",
        "HOLDFAST_CONTROL", "HOLDFAST_SOCKET",  "HOLDFAST_SAVE_DIR",  "HOLDFAST_TOKEN",
        "HOLDFAST_DRILL",   "HOLDFAST_FAULT",   "HOLDFAST_RESUME_DIR"};
    for (int id = 0; id < HF_SET_MAX; id++) {
        const struct hf_setting *row = &hf_settings_table[id];
        assert_non_null(row->name);
        assert_non_null(row->help);
        assert_true(row->commands != 0);
        assert_int_equal(hf_settings_find(row->name), id);
        assert_true((row->arg == NULL) == (row->type == HF_SET_BOOL));
        assert_true(row->words == NULL || row->type == HF_SET_ENUM || row->type == HF_SET_DURATION);
        assert_true(row->type != HF_SET_ENUM || row->words != NULL);
        assert_true(row->help[strlen(row->help) - 1] != '.');
        for (size_t i = 0; row->env != NULL && i < HF_COUNT(taken); i++) {
            assert_string_not_equal(row->env, taken[i]);
        }
        for (int other = 0; other < id; other++) {
            assert_string_not_equal(row->name, hf_settings_table[other].name);
            if (row->env != NULL && hf_settings_table[other].env != NULL) {
                assert_string_not_equal(row->env, hf_settings_table[other].env);
            }
        }
    }
}

static void test_defaults(void **state)
{
    (void)state;
    struct hf_settings *s = loaded(ARGS("true"), home_only);
    assert_null(hf_set_str(s, HF_SET_RUN));
    assert_null(hf_set_str(s, HF_SET_STORE));
    assert_string_equal(hf_set_str(s, HF_SET_STATE_DIR), "/home/u/.local/state/holdfast");
    assert_int_equal(hf_set_ms(s, HF_SET_EVERY), 600000);
    assert_int_equal(hf_set_ms(s, HF_SET_GRACE), 25000);
    assert_int_equal(hf_set_int(s, HF_SET_KEEP), 3);
    assert_int_equal(hf_set_int(s, HF_SET_NOTICE_SIGNAL), SIGUSR1);
    assert_int_equal(hf_set_int(s, HF_SET_BLOCK_SIZE), 16 << 20);
    assert_int_equal(hf_set_int(s, HF_SET_PROVIDER), HF_PROVIDER_AUTO);
    assert_int_equal(hf_set_int(s, HF_SET_LOG_FORMAT), HF_LOG_TEXT);
    assert_int_equal(hf_set_int(s, HF_SET_AT_STEP), -1);
    assert_false(hf_set_bool(s, HF_SET_QUIET));
    assert_int_equal(hf_set_list(s, HF_SET_CHECKPOINT_DIR)->len, 0);
    assert_false(hf_set_given(s, HF_SET_STATE_DIR));
    assert_string_equal(hf_set_where(s, HF_SET_EVERY), "");
    hf_settings_free(s);
}

static void test_flags(void **state)
{
    (void)state;
    char **argv = ARGS("--run", "cat-1", "--every=90s", "-q", "--store-survives", "--keep", "5",
                       "--checkpoint-dir", "a", "--checkpoint-dir=b:c", "--notice-signal",
                       "SIGUSR2", "--block-size", "64KiB", "--resume-args",
                       "--load {checkpoint} 'a b'", "--keep", "7", "--", "--odd", "x");
    struct hf_settings *s = loaded(argv, home_only);
    assert_string_equal(hf_set_str(s, HF_SET_RUN), "cat-1");
    assert_int_equal(hf_set_ms(s, HF_SET_EVERY), 90000);
    assert_true(hf_set_bool(s, HF_SET_QUIET));
    assert_true(hf_set_bool(s, HF_SET_STORE_SURVIVES));
    assert_int_equal(hf_set_int(s, HF_SET_KEEP), 7);
    assert_int_equal(hf_set_int(s, HF_SET_NOTICE_SIGNAL), SIGUSR2);
    assert_int_equal(hf_set_int(s, HF_SET_BLOCK_SIZE), 65536);
    const struct hf_strv *dirs = hf_set_list(s, HF_SET_CHECKPOINT_DIR);
    assert_int_equal(dirs->len, 2);
    assert_string_equal(dirs->items[0], "a");
    assert_string_equal(dirs->items[1], "b:c");
    const struct hf_strv *words = hf_set_list(s, HF_SET_RESUME_ARGS);
    assert_int_equal(words->len, 3);
    assert_string_equal(words->items[2], "a b");
    assert_int_equal(hf_set_origin(s, HF_SET_EVERY), HF_FROM_FLAG);
    assert_string_equal(hf_set_where(s, HF_SET_EVERY), "--every");
    char *const *rest = hf_settings_rest(s);
    assert_ptr_equal(rest[0], argv[19]); /* the caller's own string, not a copy */
    assert_string_equal(rest[0], "--odd");
    assert_string_equal(rest[1], "x");
    assert_null(rest[2]);
    hf_settings_free(s);
}

static void test_flags_end_at_command(void **state)
{
    (void)state;
    struct hf_settings *s =
        loaded(ARGS("--no-store-survives", "python", "--every", "-h", "--", "-q"), home_only);
    char *const *rest = hf_settings_rest(s);
    assert_string_equal(rest[0], "python");
    assert_string_equal(rest[1], "--every");
    assert_string_equal(rest[3], "--");
    assert_string_equal(rest[4], "-q");
    assert_false(hf_settings_help(s));
    assert_false(hf_set_bool(s, HF_SET_QUIET));
    assert_int_equal(hf_set_origin(s, HF_SET_STORE_SURVIVES), HF_FROM_FLAG);
    hf_settings_free(s);
}

static void test_mixed_operands(void **state)
{
    (void)state;
    struct hf_settings *s = hf_settings_new();
    struct hf_err err = {0};
    char **argv = ARGS("show", "--json", "3", "--run=r", "--", "--json");
    assert_int_equal(load(s, HF_FOR_CKPT, argv, home_only, &err), HF_OK);
    char *const *rest = hf_settings_rest(s);
    assert_string_equal(rest[0], "show");
    assert_string_equal(rest[1], "3");
    assert_string_equal(rest[2], "--json");
    assert_null(rest[3]);
    assert_true(hf_set_bool(s, HF_SET_JSON));
    assert_string_equal(hf_set_str(s, HF_SET_RUN), "r");
    hf_settings_free(s);
}

static void test_help_wins(void **state)
{
    (void)state;
    struct hf_settings *s = loaded(ARGS("--every", "1m", "-h", "--nonsense"), home_only);
    assert_true(hf_settings_help(s));
    hf_settings_free(s);
}

#define NAME_50  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define NAME_300 NAME_50 NAME_50 NAME_50 NAME_50 NAME_50 NAME_50

static void test_flag_errors(void **state)
{
    (void)state;
    static const struct {
        char *argv[4];
        const char *msg, *hint;
    } rows[] = {
        {{"--evry", "5m"}, "unknown flag '--evry'", "Did you mean '--every'?"},
        {{"--checkpont-dir=x"}, "unknown flag '--checkpont-dir'", "'--checkpoint-dir'"},
        {{"--zzzzzz"}, "unknown flag '--zzzzzz'", "'holdfast run --help'"},
        {{"-z"}, "unknown flag '-z'", "help"},
        {{"-qz"}, "unknown flag '-qz'", ""},
        {{"--times", "3"}, "flag '--times' is not for 'run'", "'holdfast drill'"},
        {{"--json"},
         "flag '--json' is not for 'run'",
         "It belongs to 'holdfast status', 'holdfast ckpt', 'holdfast doctor'."},
        {{"--no-every"}, "unknown flag '--no-every'", ""},
        {{"--no-json"}, "flag '--no-json' is not for 'run'", "'holdfast status'"},
        {{"--every"}, "flag '--every' has no value", "Write '--every DURATION'."},
        {{"--store", "--", "x"}, "flag '--store' has no value", "--store URI"},
        {{"--every", "soon"}, "--every: ", ""},
        {{"--no-quiet=true"}, "'--no-quiet' takes no value", ""},
        {{"--quiet=yes"}, "--quiet: 'yes' is neither true nor false", "true or false"},
        {{"--keep", "-2"}, "--keep: '-2' is too small", "from -1 to 1000000"},
        {{"--keep", "3x"}, "--keep: '3x' is not a whole number", ""},
        {{"--keep", "99999999999999999999"}, "not a whole number", ""},
        {{"--poll", "2h"}, "--poll: '2h' is too large", "from 10ms to 1h"},
        {{"--block-size", "1GB"}, "--block-size: '1GB' is not a size", "16MiB"},
        {{"--block-size", "2GiB"}, "too large", "bytes"},
        {{"--notice-signal", "USR3"}, "--notice-signal: 'USR3' is not a signal", "USR1"},
        {{"--notice-signal", "KILL"}, "signal 'KILL' cannot be used", "USR1"},
        {{"--provider", "gpc"}, "--provider: 'gpc' is not one", "auto aws none"},
        {{"--run", ".x"}, "--run: run name '.x' may not start with '.'", "64 letters"},
        {{"--run", "a/b"}, "run name 'a/b' may not have '/'", ""},
        {{"--run="}, "--run: the value is empty", "leave 'run' out"},
        {{"--run", "..", "x"}, "run name '..' may not start with '.'", ""},
        {{"--run", "a\nb"}, "run name 'a\\nb' may not have '\\n'", ""},
        {{"--run", "-x"}, "run name '-x' may not start with '-'", ""},
        {{"--run", "--every", "5m"}, "run name '--every' may not start with '-'", ""},
        {{"--run", "实验"}, "run name '实验' may not start with '实'", ""},
        {{"--run", "a\xb6\xc1"}, "run name 'a\\xb6\\xc1' may not have '\\xb6'", ""},
        {{"--run", NAME_300}, "…' is too long: 300 bytes", "1 to 64 letters"},
        {{"--state-dir="}, "--state-dir: the value is empty", ""},
        {{"--every", ""}, "--every: the value is empty", ""},
        {{"--notice-signal="}, "--notice-signal: the value is empty", ""},
        {{"--resume-args", "'x"}, "--resume-args: a quote (') is not closed", ""},
        {{"--resume", "--fresh"}, "'--resume' and '--fresh' exclude each other", "one of them"},
        {{"--quiet", "--debug"}, "'--quiet' and '--debug' exclude each other", ""},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        refused(HF_FOR_RUN, rows[i].argv, home_only, rows[i].msg, rows[i].hint);
    }
    refused(HF_FOR_DRILL, ARGS("--run", "x"), home_only, "'--run' is not for 'drill'", "run");
    refused(HF_FOR_DRILL, ARGS("--at-step", "3", "--after=1s"), home_only, "exclude", "");
    refused(HF_FOR_DRILL, ARGS("--no-notice", "--notice=9s"), home_only, "exclude", "");
    refused(HF_FOR_RUN, ARGS("x"), ARGS("PATH=/bin"), "HOME and XDG_STATE_HOME", "--state-dir");
    /* Switched off, a flag excludes nothing. */
    struct hf_settings *s = loaded(ARGS("--no-resume", "--fresh"), home_only);
    assert_true(hf_set_bool(s, HF_SET_FRESH));
    hf_settings_free(s);
}

static void test_env(void **state)
{
    (void)state;
    char **env = ARGS("HOME=/home/u", "HOLDFAST_EVERY=7m", "HOLDFAST_KEEP=9",
                      "HOLDFAST_CHECKPOINT_DIR=/a::/b", "HOLDFAST_GRACE=", "HOLDFAST_QUIET=true",
                      "HOLDFAST_RUN=other", "HOLDFAST_RESUME=/ckpt", "HOLDFAST_FRESH=true",
                      "XDG_STATE_HOME=/xdg", "HOLDFAST_EVERYTHING=x");
    struct hf_settings *s = loaded(ARGS("--keep", "2", "true"), env);
    assert_int_equal(hf_set_ms(s, HF_SET_EVERY), 420000);
    assert_int_equal(hf_set_origin(s, HF_SET_EVERY), HF_FROM_ENV);
    assert_string_equal(hf_set_where(s, HF_SET_EVERY), "HOLDFAST_EVERY");
    assert_int_equal(hf_set_int(s, HF_SET_KEEP), 2);
    assert_int_equal(hf_set_ms(s, HF_SET_GRACE), 25000);
    assert_true(hf_set_bool(s, HF_SET_QUIET));
    assert_int_equal(hf_set_list(s, HF_SET_CHECKPOINT_DIR)->len, 2);
    assert_string_equal(hf_set_list(s, HF_SET_CHECKPOINT_DIR)->items[1], "/b");
    assert_null(hf_set_str(s, HF_SET_RUN)); /* what Holdfast sets for a command is not read */
    assert_false(hf_set_bool(s, HF_SET_RESUME));
    assert_false(hf_set_bool(s, HF_SET_FRESH));
    assert_string_equal(hf_set_str(s, HF_SET_STATE_DIR), "/xdg/holdfast");
    hf_settings_free(s);
    refused(HF_FOR_RUN, ARGS("x"), ARGS("HOME=/h", "HOLDFAST_EVERY=soon"), "HOLDFAST_EVERY: ", "");
    refused(HF_FOR_RUN, ARGS("x"), ARGS("HOME=/h", "HOLDFAST_DEBUG=1"),
            "HOLDFAST_DEBUG: '1' is neither true nor false", "true or false");
}

static void test_precedence(void **state)
{
    (void)state;
    put_file("holdfast.yaml", "every: 1m\nkeep: 4\ngrace: 3s\ncheckpoint-dir: [x, ~/y]\n");
    char **env = ARGS("HOME=/home/u", "HOLDFAST_EVERY=2m", "HOLDFAST_KEEP=5");
    struct hf_settings *s = loaded(ARGS("--every", "3m"), env);
    assert_int_equal(hf_set_ms(s, HF_SET_EVERY), 180000);
    assert_int_equal(hf_set_int(s, HF_SET_KEEP), 5);
    assert_int_equal(hf_set_ms(s, HF_SET_GRACE), 3000);
    assert_int_equal(hf_set_origin(s, HF_SET_GRACE), HF_FROM_FILE);
    assert_string_equal(hf_set_where(s, HF_SET_GRACE), "holdfast.yaml:3:8: grace");
    assert_string_equal(hf_set_list(s, HF_SET_CHECKPOINT_DIR)->items[1], "/home/u/y");
    hf_settings_free(s);
    /* A list of a higher origin replaces, it does not grow the lower one. */
    s = loaded(ARGS("--checkpoint-dir", "only"), env);
    assert_int_equal(hf_set_list(s, HF_SET_CHECKPOINT_DIR)->len, 1);
    hf_settings_free(s);
    /* A file's value for another command is checked, and not taken. */
    s = hf_settings_new();
    struct hf_err err = {0};
    assert_int_equal(load(s, HF_FOR_STATUS, ARGS(NULL), env, &err), HF_OK);
    assert_false(hf_set_given(s, HF_SET_EVERY));
    hf_settings_free(s);
}

static void test_file_places(void **state)
{
    (void)state;
    assert_int_equal(hf_fs_mkdirs("conf/holdfast", 0700, NULL), HF_OK);
    put_file("conf/holdfast/config.yaml", "keep: 11\n");
    put_file("other.json",
             "{\"keep\": 12, \"quiet\": true,\n \"checkpoint-dir\": [\"p\", \"q\"]}\n");
    HF_CLEANUP(hf_freep) char *xdg = hf_asprintf("XDG_CONFIG_HOME=%s/conf", folder);
    struct hf_settings *s = loaded(ARGS("x"), ARGS("HOME=/h", xdg));
    assert_int_equal(hf_set_int(s, HF_SET_KEEP), 11);
    hf_settings_free(s);
    put_file("holdfast.yaml", "keep: 13\n");
    s = loaded(ARGS("x"), ARGS("HOME=/h", xdg));
    assert_int_equal(hf_set_int(s, HF_SET_KEEP), 13);
    hf_settings_free(s);
    s = loaded(ARGS("x"), ARGS("HOME=/h", xdg, "HOLDFAST_CONFIG=other.json"));
    assert_int_equal(hf_set_int(s, HF_SET_KEEP), 12);
    assert_true(hf_set_bool(s, HF_SET_QUIET));
    assert_int_equal(hf_set_list(s, HF_SET_CHECKPOINT_DIR)->len, 2);
    hf_settings_free(s);
    s = hf_settings_new();
    struct hf_err err = {0};
    assert_int_equal(load(s, HF_FOR_RUN, ARGS("--config=none.yaml"), home_only, &err),
                     HF_ENOTFOUND);
    assert_contains(err.msg, "none.yaml");
    hf_settings_free(s);
}

static void file_refused(const char *name, const char *text, size_t len, const char *msg,
                         const char *hint)
{
    struct hf_err err = {0};
    assert_int_equal(hf_fs_write(name, (struct hf_span){text, len}, 0600, false, &err), HF_OK);
    struct hf_settings *s = hf_settings_new();
    if (hf_settings_file(s, name, NULL, &err) != HF_EINVAL) {
        fail_msg("'%s' was not refused", text);
    }
    assert_contains(err.msg, msg);
    assert_contains(err.hint, hint);
    hf_settings_free(s);
}

static void test_file_errors(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *msg, *hint;
    } rows[] = {
        {"a.yaml", "keep: 3\n\tevry: 5\n", "a.yaml:2:1: a tab", "spaces"},
        {"a.yaml", "keep: 3\nevry: 5m\n", "a.yaml:2:1: unknown setting 'evry'", "'every'"},
        {"a.yaml", "zzzzzzz: 1\n", "a.yaml:1:1: unknown setting", "run --help"},
        {"a.yaml", "keep: 3\n\nkeep: 4\n", "a.yaml:3:1: 'keep' is set twice", "line 1"},
        {"a.yaml", "keep: many\n", "a.yaml:1:7: keep: 'many' is not a whole number", ""},
        {"a.yaml", "quiet: yes\n", "a.yaml:1:8: quiet: 'yes' is neither", "true or false"},
        {"a.yaml", "fresh: true\n", "a.yaml:1:1: 'fresh' cannot be set in a file", "--fresh"},
        {"a.yaml", "config: b.yaml\n", "'config' cannot be set in a file", "--config"},
        {"a.yaml", "store:\n", "a.yaml:1:7: store: there is no value", "default"},
        {"a.yaml", "store: ~\n", "there is no value", ""},
        {"a.yaml", "store: [a]\n", "a.yaml:1:8: a list where a plain", "every: 10m"},
        {"a.yaml", "checkpoint-dir: [a, [b]]\n", "a.yaml:1:21: a list where", ""},
        {"a.yaml", "run: {a: b}\n", "a.yaml:1:6: a mapping where", ""},
        {"a.yaml", "run: &x a\nstore: *x\n", "a.yaml:2:8: an alias where", ""},
        {"a.yaml", "? [a]\n: b\n", "a.yaml:1:3: a list where", ""},
        {"a.yaml", "- a\n", "a.yaml:1:1: not a mapping of settings", "every: 10m"},
        {"a.yaml", "just words\n", "a.yaml:1:1: not a mapping", ""},
        {"a.yaml", "keep: 3\n---\nkeep: 4\n", "a.yaml:2:1: a second document", ""},
        {"a.yaml", "store: \"a\\0b\"\n", "the value has a NUL", ""},
        {"a.yaml", "keep: [\n", "a.yaml:", ""},
        {"a.json", "{\"keep\": 3,\n \"evry\": 1}", "a.json:2:2: unknown setting 'evry'", "'every'"},
        {"a.json", "{\"keep\": 3, \"keep\": 4}", "a.json:1:13: 'keep' is set twice", "line 1"},
        {"a.json", "{\"store\": null}", "store: there is no value", ""},
        {"a.json", "[1]", "a.json:1:1: not a mapping", ""},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        file_refused(rows[i].name, rows[i].text, strlen(rows[i].text), rows[i].msg, rows[i].hint);
    }
    file_refused("a.json", "keep: 3\n", 8, "a.json:1:1: not JSON", "{\"every\"");
}

static void test_file_scalars_are_text(void **state)
{
    (void)state;
    put_file("a.yaml", "# a comment\nrun: 007\nstore: \"null\"\nsave-dir: 0x10\ndone-file: 'true'\n"
                       "after: 5s\n");
    struct hf_settings *s = hf_settings_new();
    struct hf_err err = {0};
    assert_int_equal(hf_settings_file(s, "a.yaml", NULL, &err), HF_EINVAL);
    assert_contains(err.msg, "'after' cannot be set in a file");
    assert_string_equal(hf_set_str(s, HF_SET_RUN), "007");
    assert_string_equal(hf_set_str(s, HF_SET_STORE), "null");
    assert_string_equal(hf_set_str(s, HF_SET_SAVE_DIR), "0x10");
    assert_string_equal(hf_set_str(s, HF_SET_DONE_FILE), "true");
    hf_settings_free(s);
    static const char *const empty[] = {"", "\n", "# nothing\n", "---\n", "{}\n"};
    for (size_t i = 0; i < HF_COUNT(empty); i++) {
        put_file("a.yaml", empty[i]);
        s = hf_settings_new();
        assert_int_equal(hf_settings_file(s, "a.yaml", NULL, &err), HF_OK);
        hf_settings_free(s);
    }
}

static void test_run_names(void **state)
{
    (void)state;
    static const char *const good[] = {"a", "0", "A.b_c-9", "x--"};
    static const char *const bad[] = {"", "-a", ".a", "_a", "a b", "a/b", "\xc3\xa9", "a\n"};
    for (size_t i = 0; i < HF_COUNT(good); i++) {
        assert_int_equal(hf_run_name_check(good[i], NULL), HF_OK);
    }
    for (size_t i = 0; i < HF_COUNT(bad); i++) {
        struct hf_err err = {0};
        assert_int_equal(hf_run_name_check(bad[i], &err), HF_EINVAL);
        assert_contains(err.hint, "1 to 64 letters");
    }
    char name[66];
    memset(name, 'n', 65);
    name[65] = '\0';
    assert_int_equal(hf_run_name_check(name, NULL), HF_EINVAL);
    name[64] = '\0';
    assert_int_equal(hf_run_name_check(name, NULL), HF_OK);
}

static void test_words(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *words[5];
    } rows[] = {
        {"", {NULL}},
        {"  \t\n ", {NULL}},
        {"a  b\tc", {"a", "b", "c"}},
        {"'a b' \"c d\"", {"a b", "c d"}},
        {"a'b'\"c\"d", {"abcd"}},
        {"'' \"\"", {"", ""}},
        {"a\\ b \\'", {"a b", "'"}},
        {"\"\\\"\\$\\n\"", {"\"$\\n"}},
        {"'\\'", {"\\"}},
        {"$HOME `x` *", {"$HOME", "`x`", "*"}},
        {"a\\", {"a\\"}},
        {"--load={checkpoint} -v", {"--load={checkpoint}", "-v"}},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_strv words = {0};
        assert_int_equal(hf_words_split(rows[i].text, &words, NULL), HF_OK);
        size_t n = 0;
        for (; rows[i].words[n] != NULL; n++) {
            assert_true(n < words.len);
            assert_string_equal(words.items[n], rows[i].words[n]);
        }
        assert_int_equal(words.len, n);
        hf_strv_clear(&words);
    }
    struct hf_strv words = {0};
    hf_strv_add(&words, "kept");
    assert_int_equal(hf_words_split("a b \"c", &words, NULL), HF_EINVAL);
    assert_int_equal(words.len, 1);
    hf_strv_clear(&words);
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const names[] = {"run", "drill", "status", "ckpt", "logs", NULL};
    static const struct {
        const char *word, *want;
    } rows[] = {{"statsu", "status"}, {"rnu", "run"},  {"dril", "drill"},
                {"checkpoint", NULL}, {"log", "logs"}, {"", NULL},
                {"ckpt", "ckpt"},     {"sweep", NULL}, {"staus", "status"}};
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        const char *got = hf_nearest(rows[i].word, names);
        if (rows[i].want == NULL) {
            assert_null(got);
        } else {
            assert_non_null(got);
            assert_string_equal(got, rows[i].want);
        }
    }
    char longer[200];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_null(hf_nearest(longer, names));
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t want; /* -1: refused */
    } sizes[] = {{"0", 0},
                 {"4096", 4096},
                 {"4096B", 4096},
                 {"64KiB", 65536},
                 {"16MiB", 16 << 20},
                 {"1GiB", 1 << 30},
                 {"1kib", -1},
                 {"-1", -1},
                 {"", -1},
                 {"1.5MiB", -1},
                 {"MiB", -1},
                 {"9223372036854775807GiB", -1},
                 {"99999999999999999999", -1},
                 {" 1", -1}};
    for (size_t i = 0; i < HF_COUNT(sizes); i++) {
        int64_t got = -1;
        enum hf_rc rc = hf_bytes_parse(sizes[i].text, &got, NULL);
        assert_int_equal(rc, sizes[i].want < 0 ? HF_EINVAL : HF_OK);
        assert_int_equal(got, sizes[i].want);
    }
    static const struct {
        const char *text;
        int want; /* 0: refused */
    } signals[] = {{"USR1", SIGUSR1}, {"SIGUSR1", SIGUSR1},
                   {"usr2", SIGUSR2}, {"15", SIGTERM},
                   {"0", 0},          {"-1", 0},
                   {"999", 0},        {"STOP", 0},
                   {"9", 0},          {"RTMIN+999", 0},
                   {"", 0},           {"SIG", 0}};
    for (size_t i = 0; i < HF_COUNT(signals); i++) {
        int got = 0;
        enum hf_rc rc = hf_signal_parse(signals[i].text, &got, NULL);
        assert_int_equal(rc, signals[i].want == 0 ? HF_EINVAL : HF_OK);
        assert_int_equal(got, signals[i].want);
    }
    int got = 0;
    assert_int_equal(hf_signal_parse("RTMIN+3", &got, NULL), HF_OK);
    assert_int_equal(got, SIGRTMIN + 3);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, enter_folder, leave_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        IN_FOLDER(test_defaults),
        IN_FOLDER(test_flags),
        IN_FOLDER(test_flags_end_at_command),
        IN_FOLDER(test_mixed_operands),
        IN_FOLDER(test_help_wins),
        IN_FOLDER(test_flag_errors),
        IN_FOLDER(test_env),
        IN_FOLDER(test_precedence),
        IN_FOLDER(test_file_places),
        IN_FOLDER(test_file_errors),
        IN_FOLDER(test_file_scalars_are_text),
        cmocka_unit_test(test_run_names),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
