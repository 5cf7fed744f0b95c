/* SPDX-License-Identifier: Apache-2.0
 *
 * Every setting of the table, from every source that may give it (--NAME=, --NAME, the variable, a
 * YAML file plain and quoted, a JSON file), with every form of value: what is taken is what was
 * meant, and a refusal names the place, the value and what is allowed. Expectations come from the
 * forms below and the row's bounds, not from the parsers.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "base/text.h"
#include "supervisor/settings.h"

#define BAD   INT64_MIN
#define MIN   INT64_C(60000)
#define HOUR  (60 * MIN)
#define DAY   (24 * HOUR)
#define ROOM  (1 << 20)
#define F_YML "f.yaml"
#define F_JSN "f.json"

static char folder[64];
static char buf_a[ROOM];
static char buf_b[ROOM];

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

enum source { FLAG_EQ, FLAG_WORD, VARIABLE, YAML_QUOTED, YAML_PLAIN, JSON, SOURCES };

static unsigned lowest(unsigned bits)
{
    return bits & (~bits + 1);
}

static bool is_flag(enum source from)
{
    return from == FLAG_EQ || from == FLAG_WORD;
}

/* Whether the row can be given from there at all. --config names a file: see test_config. */
static bool can_give(const struct hf_setting *row, enum source from)
{
    if (row == &hf_settings_table[HF_SET_CONFIG]) {
        return false;
    }
    return is_flag(from) ? from == FLAG_EQ || row->type != HF_SET_BOOL : row->env != NULL;
}

/* Letters, digits and a few signs that mean nothing to YAML. */
static bool is_plain(const char *text)
{
    return text[0] != '\0' && strlen(text) < 100 && strcmp(text, "null") != 0 &&
           text[strspn(
               text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./+_")] == '\0';
}

static void quote(char *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\n' || *text == '\t') {
            *out++ = '\\';
            *out++ = *text == '\n' ? 'n' : 't';
            continue;
        }
        if (*text == '"' || *text == '\\') {
            *out++ = '\\';
        }
        *out++ = *text;
    }
    *out = '\0';
}

struct given {
    const struct hf_setting *row;
    enum source from;
    const char *text;
    unsigned command; /* 0: the row's first */
};

/* Loads with this one value given; `where` is what messages must begin with. */
static enum hf_rc give(const struct given *g, struct hf_settings **ret, char where[200],
                       struct hf_err *err)
{
    const char *name = g->row->name;
    size_t column = strlen(name) + (g->from == JSON ? 6 : 3);
    HF_CLEANUP(hf_freep) char *flag = hf_asprintf("--%s", name);
    HF_CLEANUP(hf_freep) char *value = hf_strdup(g->text);
    HF_CLEANUP(hf_freep) char *joined = hf_asprintf("%s=%s", flag, g->text);
    HF_CLEANUP(hf_freep) char *variable = hf_asprintf("%s=%s", g->row->env, g->text);
    const char *file = g->from == JSON ? F_JSN : F_YML;
    HF_CLEANUP(hf_freep) char *config = hf_asprintf("--config=%s", file);
    char *argv[4] = {NULL};
    char *env[3] = {"HOME=/home/u", g->from == VARIABLE ? variable : NULL, NULL};
    quote(buf_a, g->text);
    (void)snprintf(buf_b, ROOM,
                   g->from == JSON         ? "{\"%s\": \"%s\"}"
                   : g->from == YAML_PLAIN ? "%s: %s\n"
                                           : "%s: \"%s\"\n",
                   name, g->from == YAML_PLAIN ? g->text : buf_a);
    if (is_flag(g->from)) {
        argv[0] = g->from == FLAG_EQ ? joined : flag;
        argv[1] = g->from == FLAG_EQ ? NULL : value;
        (void)snprintf(where, 200, "--%s: ", name);
    } else if (g->from == VARIABLE) {
        (void)snprintf(where, 200, "%s: ", g->row->env);
    } else {
        struct hf_span span = {buf_b, strlen(buf_b)};
        assert_int_equal(hf_fs_write(file, span, 0600, false, NULL), HF_OK);
        argv[0] = config;
        (void)snprintf(where, 200, "%s:1:%zu: %s: ", file, column, name);
    }
    unsigned command = g->command != 0 ? g->command : lowest(g->row->commands);
    bool mixed = command != HF_FOR_RUN && command != HF_FOR_DRILL;
    struct hf_settings_in in = {.command = command, .argv = argv, .env = env, .mixed = mixed};
    *ret = hf_settings_new();
    enum hf_rc rc = hf_settings_load(*ret, &in, err);
    assert_null(rc == HF_OK ? hf_settings_rest(*ret)[0] : NULL);
    return rc;
}

/* The number behind a value, by the getter of its type. */
static int64_t number(const struct hf_settings *s, enum hf_set_id id)
{
    switch (hf_settings_table[id].type) {
    case HF_SET_BOOL:
        return hf_set_bool(s, id);
    case HF_SET_DURATION:
        return (int64_t)hf_set_ms(s, id);
    case HF_SET_INT:
    case HF_SET_BYTES:
    case HF_SET_SIGNAL:
    case HF_SET_ENUM:
        return hf_set_int(s, id);
    case HF_SET_PATHS:
    case HF_SET_WORDS:
        return (int64_t)hf_set_list(s, id)->len;
    case HF_SET_TEXT:
    case HF_SET_NAME:
    case HF_SET_PATH:
        break;
    }
    return 0;
}

static bool has_number(enum hf_set_type type)
{
    return type != HF_SET_TEXT && type != HF_SET_NAME && type != HF_SET_PATH;
}

static bool in_bounds(const struct hf_setting *row, int64_t v)
{
    return (row->min == 0 && row->max == 0) || (v >= row->min && v <= row->max) ||
           v == (int64_t)HF_SET_WORD;
}

static const char *allowed(const struct hf_setting *row, char out[200])
{
    char a[HF_DURATION_STRLEN];
    char b[HF_DURATION_STRLEN];
    if (row->type == HF_SET_DURATION) {
        (void)snprintf(out, 200, "It may be from %s to %s.",
                       hf_duration_format((uint64_t)row->min, a),
                       hf_duration_format((uint64_t)row->max, b));
    } else {
        (void)snprintf(out, 200, "It may be from %" PRId64 " to %" PRId64 "%s.", row->min, row->max,
                       row->type == HF_SET_BYTES ? " bytes" : "");
    }
    return out;
}

static const struct {
    const char *why, *hint; /* of a text that is none of the type's; hint NULL: the bounds */
} wrong[] = {
    [HF_SET_NAME] = {"run name '", "1 to 64 letters"},
    [HF_SET_BOOL] = {"is neither true nor false", "Write true or false."},
    [HF_SET_INT] = {"is not a whole number", NULL},
    [HF_SET_DURATION] = {"is not a duration", "90s, 5m, 1h30m or 250ms"},
    [HF_SET_BYTES] = {"is not a size", "4096, 64KiB, 16MiB or 1GiB"},
    [HF_SET_SIGNAL] = {"'", "USR1"},
    [HF_SET_ENUM] = {"is not one of its words", "The words are: "},
    [HF_SET_WORDS] = {"is not closed", ""},
};

static void must_have(const struct given *g, const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("%s '%.60s' from source %d: '%s' is not in '%s'", g->row->name, g->text, g->from,
                 part, text);
    }
}

static void refusal(const struct given *g, int64_t want, const char *where,
                    const struct hf_err *err)
{
    char bounds[200];
    must_have(g, err->msg, where);
    assert_ptr_equal(strstr(err->msg, where), err->msg);
    if (g->text[0] == '\0') {
        must_have(g, err->msg, "the value is empty");
        must_have(g, err->hint, g->row->name);
        return;
    }
    const char *hint = wrong[g->row->type].hint;
    bool endless = strstr(err->msg, "is longer than ten years") != NULL; /* a duration all right */
    if (want == BAD && g->row->type == HF_SET_DURATION && endless) {
        assert_true(strspn(g->text, "0123456789") >= 12);
        hint = g->row->words != NULL ? hint : NULL;
    } else if (want != BAD) {
        must_have(g, err->msg, want < g->row->min ? "is too small" : "is too large");
        hint = NULL;
    } else {
        must_have(g, err->msg, wrong[g->row->type].why);
    }
    must_have(g, err->hint, hint != NULL ? hint : allowed(g->row, bounds));
    if (g->row->words != NULL && want == BAD) {
        must_have(g, err->hint, g->row->words);
    }
    HF_CLEANUP(hf_freep) char *clean = hf_text_clean(g->text);
    if (g->row->type != HF_SET_WORDS && strlen(clean) < 48 && strcmp(clean, g->text) == 0) {
        HF_CLEANUP(hf_freep) char *shown = hf_asprintf("'%s'", g->text);
        must_have(g, err->msg, shown);
    }
    for (const char *p = err->msg; *p != '\0'; p++) {
        assert_true((unsigned char)*p >= 0x20 && *p != 0x7f);
    }
}

static enum hf_origin origin_of(enum source from)
{
    return is_flag(from) ? HF_FROM_FLAG : from == VARIABLE ? HF_FROM_ENV : HF_FROM_FILE;
}

/* One value from every source. want: the number behind it, BAD: no value of that type. */
static void check(enum hf_set_id id, const char *text, int64_t want)
{
    const struct hf_setting *row = &hf_settings_table[id];
    bool good = want != BAD && in_bounds(row, want);
    for (enum source from = FLAG_EQ; from < SOURCES; from++) {
        if (!can_give(row, from) || (from == YAML_PLAIN && !is_plain(text)) ||
            (from == VARIABLE && text[0] == '\0')) {
            continue;
        }
        struct given g = {.row = row, .from = from, .text = text};
        struct hf_settings *s = NULL;
        struct hf_err err = {0};
        char where[200];
        enum hf_rc rc = give(&g, &s, where, &err);
        if (rc != (good ? HF_OK : HF_EINVAL)) {
            fail_msg("%s '%.60s' from source %d: rc %d, '%s'", row->name, text, from, rc, err.msg);
        }
        if (!good) {
            refusal(&g, want, where, &err);
        } else {
            where[strlen(where) - 2] = '\0';
            assert_string_equal(hf_set_where(s, id), where);
            assert_int_equal(hf_set_origin(s, id), origin_of(from));
            assert_true(hf_set_given(s, id));
            assert_string_equal(hf_set_str(s, id), text);
            if (has_number(row->type) && number(s, id) != want) {
                fail_msg("%s '%s' is %" PRId64, row->name, text, number(s, id));
            }
        }
        hf_settings_free(s);
    }
}

struct form {
    const char *text;
    int64_t want;
};

static const struct form durations[] = {
    {"0", 0},
    {"90", 90000},
    {"90s", 90000},
    {"5m", 5 * MIN},
    {"250ms", 250},
    {"1h30m", 90 * MIN},
    {"1.5h", 90 * MIN},
    {"0.5s", 500},
    {"2d", 2 * DAY},
    {"01m", MIN},
    {"1d2h3m4s5ms", DAY + 2 * HOUR + 3 * MIN + 4005},
    {"5 m", BAD},
    {"5x", BAD},
    {"5M", BAD},
    {"m", BAD},
    {"-1s", BAD},
    {"+1s", BAD},
    {"1e3", BAD},
    {".5s", BAD},
    {"1.s", BAD},
    {"1m30", BAD},
    {"1m-5s", BAD},
    {"1,5s", BAD},
    {"1_000s", BAD},
    {"0x10", BAD},
    {"5m ", BAD},
    {" 5m", BAD},
    {"5min", BAD},
    {"5KiB", BAD},
    {"inf", BAD},
    {"true", BAD},
    {"５m", BAD},
    {"٣s", BAD},
    {"5m\n", BAD},
    {"99999999999999999999s", BAD},
};
static const struct form ints[] = {
    {"3", 3},    {"003", 3},   {"-1", -1},   {"3.0", BAD},  {"3,0", BAD},
    {"+3", BAD}, {"0x3", BAD}, {"1e1", BAD}, {"1_0", BAD},  {"3s", BAD},
    {"3 ", BAD}, {" 3", BAD},  {"- 3", BAD}, {"--3", BAD},  {"three", BAD},
    {"３", BAD}, {"٣", BAD},   {"3\n", BAD}, {"true", BAD}, {"9223372036854775808", BAD},
    {" ", BAD},  {"-", BAD},   {"3\t", BAD}, {"Ⅲ", BAD},    {"-9223372036854775809", BAD},
};
static const struct form sizes[] = {
    {"65536", 65536},  {"65536B", 65536},      {"64KiB", 65536}, {"1MiB", 1 << 20},
    {"1GiB", 1 << 30}, {"0064KiB", 65536},     {"64kiB", BAD},   {"64K", BAD},
    {"64KB", BAD},     {"64 KiB", BAD},        {"1.5MiB", BAD},  {"-1", BAD},
    {"+1", BAD},       {"KiB", BAD},           {"1TiB", BAD},    {"1MiB1KiB", BAD},
    {"0x10", BAD},     {"1e6", BAD},           {"5m", BAD},      {" 1MiB", BAD},
    {"1MiB ", BAD},    {"1MiB\n", BAD},        {"１MiB", BAD},   {"true", BAD},
    {"1_000", BAD},    {"8589934592GiB", BAD},
};
static const struct form signals[] = {
    {"HUP", SIGHUP},    {"SIGINT", SIGINT}, {"quit", SIGQUIT}, {"SigTerm", SIGTERM},
    {"USR1", SIGUSR1},  {"usr2", SIGUSR2},  {"10", 10},        {"15", 15},
    {"RTMIN+1", 35},    {"64", 64},         {"65", BAD},       {"0", BAD},
    {"-1", BAD},        {"KILL", BAD},      {"9", BAD},        {"STOP", BAD},
    {"CHLD", BAD},      {"17", BAD},        {"SIG", BAD},      {"SIG10", BAD},
    {"SIGSIGHUP", BAD}, {"USR3", BAD},      {"USR1 ", BAD},    {" USR1", BAD},
    {"RTMIN+99", BAD},  {"RTMIN-1", BAD},   {"RTMIN+", BAD},   {"USR1\n", BAD},
    {"ＵＳＲ１", BAD},  {"１０", BAD},      {"10s", BAD},      {"true", BAD},
};
static const struct form bools[] = {
    {"true", 1},     {"false", 0},        {"True", BAD}, {"TRUE", BAD}, {"yes", BAD},
    {"no", BAD},     {"on", BAD},         {"off", BAD},  {"1", BAD},    {"0", BAD},
    {"true ", BAD},  {" true", BAD},      {"t", BAD},    {"y", BAD},    {"truefalse", BAD},
    {"true\n", BAD}, {"false true", BAD},
};
static const struct form names[] = {
    {"a", 0},     {"0", 0},     {"A.b_c-9", 0}, {"007", 0},   {"no", 0},     {"1e-4", 0},
    {"null.", 0}, {" ", BAD},   {"a b", BAD},   {" a", BAD},  {"a ", BAD},   {"a/b", BAD},
    {"..", BAD},  {".a", BAD},  {"_a", BAD},    {"a\n", BAD}, {"a\tb", BAD}, {"实验", BAD},
    {"🚀", BAD},   {"a:b", BAD}, {"a=b", BAD},   {"é", BAD},   {"a\\b", BAD}, {"a\"b", BAD},
};
/* The number is how many words there are. */
static const struct form words[] = {
    {"", 0},           {" ", 0},
    {"a", 1},          {"a b", 2},
    {" a  b ", 2},     {"'a b' c", 2},
    {"\"a\\\"b\"", 1}, {"a\nb", 2},
    {"''", 1},         {"$HOME *", 2},
    {"'a", BAD},       {"a\"b", BAD},
    {"'a' 'b", BAD},   {"--x {checkpoint}", 2},
};
/* As they are, whatever they look like. */
static const struct form texts[] = {
    {"/a", 1},         {"/a b", 1},  {" ", 1},     {" /a ", 1},  {"/实验", 1},
    {"/🚀", 1},         {"/a\nb", 1}, {"/0755", 1}, {"~user", 1}, {"/\"q\"", 1},
    {"/$HOME/{x}", 1}, {"-x", 1},    {"/\\", 1},
};

static void forms_of(const struct hf_setting *row, const struct form **ret, size_t *ret_n)
{
#define TAKE(table) (*ret = (table), *ret_n = HF_COUNT(table))
    switch (row->type) {
    case HF_SET_TEXT:
    case HF_SET_PATH:
    case HF_SET_PATHS:
        TAKE(texts);
        break;
    case HF_SET_NAME:
        TAKE(names);
        break;
    case HF_SET_BOOL:
        TAKE(bools);
        break;
    case HF_SET_INT:
        TAKE(ints);
        break;
    case HF_SET_DURATION:
        TAKE(durations);
        break;
    case HF_SET_BYTES:
        TAKE(sizes);
        break;
    case HF_SET_SIGNAL:
        TAKE(signals);
        break;
    case HF_SET_WORDS:
        TAKE(words);
        break;
    case HF_SET_ENUM:
        TAKE(names); /* none of its words is among them: see test_enums */
        break;
    }
#undef TAKE
}

static void test_every_form(void **state)
{
    (void)state;
    for (int id = 0; id < HF_SET_MAX; id++) {
        const struct hf_setting *row = &hf_settings_table[id];
        const struct form *forms = NULL;
        size_t n = 0;
        forms_of(row, &forms, &n);
        for (size_t i = 0; i < n; i++) {
            bool state_dir = id == HF_SET_STATE_DIR && forms[i].text[0] != '/';
            if (!state_dir && !(id == HF_SET_STATE_DIR && strchr(forms[i].text, ' ') != NULL)) {
                check((enum hf_set_id)id, forms[i].text,
                      row->type == HF_SET_ENUM ? BAD : forms[i].want);
            }
        }
        if (row->type != HF_SET_WORDS) {
            check((enum hf_set_id)id, "", BAD);
        }
    }
}

/* The smallest and the largest, one below and one above, in every unit that writes them. */
static void test_bounds(void **state)
{
    (void)state;
    static const char *const units[] = {
        [HF_SET_INT] = "", [HF_SET_BYTES] = "B", [HF_SET_DURATION] = "ms"};
    size_t seen = 0;
    for (int id = 0; id < HF_SET_MAX; id++) {
        const struct hf_setting *row = &hf_settings_table[id];
        if (row->min == 0 && row->max == 0) {
            continue;
        }
        assert_true(row->type == HF_SET_INT || row->type == HF_SET_BYTES ||
                    row->type == HF_SET_DURATION);
        int64_t values[] = {row->min, row->max, row->min - 1,
                            row->max == INT64_MAX ? row->max : row->max + 1};
        for (size_t i = 0; i < HF_COUNT(values); i++) {
            char text[64];
            (void)snprintf(text, sizeof text, "%" PRId64 "%s", values[i], units[row->type]);
            check((enum hf_set_id)id, text,
                  values[i] < 0 && row->type != HF_SET_INT ? BAD : values[i]);
            seen++;
        }
    }
    assert_true(seen > 60);
}

static void test_enums(void **state)
{
    (void)state;
    for (int id = 0; id < HF_SET_MAX; id++) {
        const struct hf_setting *row = &hf_settings_table[id];
        if (row->words == NULL) {
            continue;
        }
        int64_t index = 0;
        size_t len = 0;
        for (const char *p = row->words; *p != '\0'; p += len + (p[len] == ' ')) {
            len = strcspn(p, " ");
            HF_CLEANUP(hf_freep) char *w = hf_strndup(p, len);
            bool time = row->type == HF_SET_DURATION;
            check((enum hf_set_id)id, w, time ? (int64_t)HF_SET_WORD : index++);
            HF_CLEANUP(hf_freep) char *spaced = hf_asprintf("%s ", w);
            HF_CLEANUP(hf_freep) char *cut = hf_strndup(w, len - 1);
            HF_CLEANUP(hf_freep) char *upper = hf_strdup(w);
            upper[0] = (char)(upper[0] >= 'a' ? upper[0] - 'a' + 'A' : ' ');
            check((enum hf_set_id)id, spaced, BAD);
            check((enum hf_set_id)id, cut, BAD);
            check((enum hf_set_id)id, upper, BAD);
        }
        if (row->type == HF_SET_ENUM && strchr(row->words, ' ') != NULL) {
            check((enum hf_set_id)id, row->words, BAD);
        }
    }
}

/* No name, number or word: the message still says which, where and why. */
static void test_very_long(void **state)
{
    (void)state;
    static char text[100001];
    for (int id = 0; id < HF_SET_MAX; id++) {
        const struct hf_setting *row = &hf_settings_table[id];
        bool any = row->type == HF_SET_TEXT || row->type == HF_SET_PATH ||
                   row->type == HF_SET_PATHS || row->type == HF_SET_WORDS;
        static const size_t lengths[] = {65, 600, 100000};
        for (size_t i = 0; i < HF_COUNT(lengths); i++) {
            memset(text, '1', lengths[i]);
            text[0] = any ? '/' : '1';
            text[lengths[i]] = '\0';
            check((enum hf_set_id)id, text, any ? 1 : BAD);
        }
    }
}

/* A default is what it says it is: given as text, it is the same value. */
static void test_defaults_round(void **state)
{
    (void)state;
    struct hf_settings *fresh = hf_settings_new();
    for (int id = 0; id < HF_SET_MAX; id++) {
        const struct hf_setting *row = &hf_settings_table[id];
        if (row->fallback != NULL) {
            assert_true(in_bounds(row, number(fresh, (enum hf_set_id)id)));
            check((enum hf_set_id)id, row->fallback, number(fresh, (enum hf_set_id)id));
        } else if (row->type == HF_SET_INT) {
            assert_int_equal(number(fresh, (enum hf_set_id)id), -1);
        }
        assert_false(hf_set_given(fresh, (enum hf_set_id)id));
    }
    hf_settings_free(fresh);
}

/* Two values of a row that differ, as the row's type has them. */
static const char *sample(const struct hf_setting *row, int which)
{
    static const char *const samples[][3] = {[HF_SET_TEXT] = {"/x", "/y", "/z"},
                                             [HF_SET_NAME] = {"x", "y", "z"},
                                             [HF_SET_PATH] = {"/x", "/y", "/z"},
                                             [HF_SET_BOOL] = {"true", "false", "true"},
                                             [HF_SET_INT] = {"5", "6", "7"},
                                             [HF_SET_DURATION] = {"31s", "32s", "33s"},
                                             [HF_SET_BYTES] = {"64KiB", "1MiB", "2MiB"},
                                             [HF_SET_SIGNAL] = {"HUP", "USR1", "USR2"},
                                             [HF_SET_PATHS] = {"/x", "/y", "/z"},
                                             [HF_SET_WORDS] = {"x", "y", "z"}};
    return samples[row->type][which];
}

static const char *enum_sample(const struct hf_setting *row, int which, char out[32])
{
    const char *second = strchr(row->words, ' ') + 1;
    bool first = which != 1;
    (void)snprintf(out, 32, "%.*s", (int)strcspn(first ? row->words : second, " "),
                   first ? row->words : second);
    return out;
}

/* Every subset of the sources: the highest that speaks is heard, and nothing of the others. */
static void subset(enum hf_set_id id, unsigned which)
{
    const struct hf_setting *row = &hf_settings_table[id];
    char room[3][32];
    const char *text[3];
    for (int i = 0; i < 3; i++) {
        text[i] = row->type == HF_SET_ENUM ? enum_sample(row, i, room[i]) : sample(row, i);
    }
    HF_CLEANUP(hf_freep) char *file = hf_asprintf("# one\n%s: %s\n", row->name, text[0]);
    HF_CLEANUP(hf_freep) char *variable = hf_asprintf("%s=%s", row->env, text[1]);
    HF_CLEANUP(hf_freep) char *flag = hf_asprintf("--%s=%s", row->name, text[2]);
    HF_CLEANUP(hf_freep)
    char *place = hf_asprintf(F_YML ":2:%zu: %s", strlen(row->name) + 3, row->name);
    HF_CLEANUP(hf_freep) char *dashed = hf_asprintf("--%s", row->name);
    assert_int_equal(hf_fs_write(F_YML, (struct hf_span){file, strlen(file)}, 0600, false, NULL),
                     HF_OK);
    char *argv[] = {(which & 1) != 0 ? "--config=" F_YML : "--no-debug",
                    (which & 4) != 0 ? flag : NULL, NULL};
    char *env[] = {"HOME=/home/u", (which & 2) != 0 ? variable : NULL, NULL};
    struct hf_settings_in in = {.command = lowest(row->commands), .argv = argv, .env = env};
    struct hf_settings *s = hf_settings_new();
    struct hf_err err = {0};
    if (hf_settings_load(s, &in, &err) != HF_OK) {
        fail_msg("%s: %s", row->name, err.msg);
    }
    int top = (which & 4) != 0 ? 2 : (which & 2) != 0 ? 1 : (which & 1) != 0 ? 0 : -1;
    assert_int_equal(hf_set_origin(s, id), top + 1);
    const char *where = top == 2 ? dashed : top == 1 ? row->env : top == 0 ? place : "";
    assert_string_equal(hf_set_where(s, id), where);
    if (top >= 0) {
        assert_string_equal(hf_set_str(s, id), text[top]);
    } else if (id != HF_SET_STATE_DIR && row->fallback != NULL) {
        assert_string_equal(hf_set_str(s, id), row->fallback);
    }
    if (row->type == HF_SET_PATHS || row->type == HF_SET_WORDS) {
        assert_int_equal(hf_set_list(s, id)->len, top >= 0);
    }
    hf_settings_free(s);
}

static void test_precedence(void **state)
{
    (void)state;
    for (int id = 0; id < HF_SET_MAX; id++) {
        if (hf_settings_table[id].env == NULL || id == HF_SET_CONFIG || id == HF_SET_DEBUG) {
            continue;
        }
        for (unsigned which = 0; which < 8; which++) {
            subset((enum hf_set_id)id, which);
        }
    }
}

/* The same flag twice: the last counts, a list grows; a wrong one is refused wherever it stands. */
static void test_repeated(void **state)
{
    (void)state;
    for (int id = 0; id < HF_SET_CONFIG; id++) {
        const struct hf_setting *row = &hf_settings_table[id];
        char room[2][32];
        bool word = row->type == HF_SET_ENUM;
        HF_CLEANUP(hf_freep)
        char *a =
            hf_asprintf("--%s=%s", row->name, word ? enum_sample(row, 0, room[0]) : sample(row, 0));
        HF_CLEANUP(hf_freep)
        char *b =
            hf_asprintf("--%s=%s", row->name, word ? enum_sample(row, 1, room[1]) : sample(row, 1));
        HF_CLEANUP(hf_freep) char *none = hf_asprintf("--%s=", row->name);
        char *orders[][4] = {{a, b, NULL}, {b, a, b, NULL}, {none, b, NULL}, {b, none, NULL}};
        for (size_t i = 0; i < HF_COUNT(orders); i++) {
            struct hf_settings_in in = {.command = lowest(row->commands),
                                        .argv = orders[i],
                                        .env = (char *[]){"HOME=/home/u", NULL}};
            struct hf_settings *s = hf_settings_new();
            bool good = i < 2 || row->type == HF_SET_WORDS;
            assert_int_equal(hf_settings_load(s, &in, NULL), good ? HF_OK : HF_EINVAL);
            if (i < 2 && row->type == HF_SET_PATHS) {
                assert_int_equal(number(s, (enum hf_set_id)id), (int)i + 2);
            } else if (i < 2) {
                assert_string_equal(hf_set_str(s, (enum hf_set_id)id), strchr(b, '=') + 1);
            }
            hf_settings_free(s);
        }
    }
}

/* A flag of another command is refused, and says whose it is; the variable is not looked at; the
 * file's line, which is there for all commands, is checked and not taken. */
static void test_other_commands(void **state)
{
    (void)state;
    static const char *const all[] = {"run", "drill", "status", "ckpt", "logs", "doctor"};
    size_t foreign = 0;
    for (int id = 0; id < HF_SET_CONFIG; id++) {
        const struct hf_setting *row = &hf_settings_table[id];
        for (unsigned c = 0; c < HF_COUNT(all); c++) {
            if ((row->commands & (1u << c)) != 0) {
                continue;
            }
            foreign++;
            for (enum source from = FLAG_EQ; from <= YAML_QUOTED; from++) {
                struct given g = {row, from, from == YAML_QUOTED ? "'" : "\"", 1u << c};
                struct hf_settings *s = NULL;
                struct hf_err err = {0};
                char where[200];
                if (!can_give(row, from)) {
                    continue;
                }
                enum hf_rc rc = give(&g, &s, where, &err);
                bool any = row->type == HF_SET_TEXT || row->type == HF_SET_PATH ||
                           row->type == HF_SET_PATHS;
                bool ignored = from == VARIABLE || (from == YAML_QUOTED && any);
                assert_int_equal(rc, ignored ? HF_OK : HF_EINVAL);
                assert_int_equal(hf_set_given(s, (enum hf_set_id)id), false);
                for (unsigned i = 0; is_flag(from) && i < HF_COUNT(all); i++) {
                    HF_CLEANUP(hf_freep) char *whose = hf_asprintf("'holdfast %s'", all[i]);
                    assert_int_equal(strstr(err.hint, whose) != NULL,
                                     (row->commands & (1u << i)) != 0);
                }
                hf_settings_free(s);
            }
        }
    }
    assert_true(foreign > 100);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, enter_folder, leave_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_every_form), IN_FOLDER(test_bounds),         IN_FOLDER(test_enums),
        IN_FOLDER(test_very_long),  IN_FOLDER(test_defaults_round), IN_FOLDER(test_precedence),
        IN_FOLDER(test_repeated),   IN_FOLDER(test_other_commands),
    };
    return cmocka_run_group_tests_name("settings_all", tests, NULL, NULL);
}
