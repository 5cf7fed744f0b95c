/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of settings: set from text by the type of the row, kept with their origin, given back
 * by typed getters; and the sources in their order. Main thread, before the loop runs. Reading
 * the settings file is settings_file.c's part.
 */
#include "base/prelude.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fsx.h"
#include "cloud/store.h"
#include "supervisor/rundir.h"
#include "supervisor/settings.h"

struct value {
    enum hf_origin origin;
    bool set;
    char *where;
    char *text;
    int64_t num;
    struct hf_strv list;
};

struct hf_settings {
    struct value values[HF_SET_MAX];
    unsigned command; /* 0: values of every command are kept */
    bool help;
    char **rest; /* owned array of the caller's strings */
};

enum hf_set_id hf_settings_find(const char *name)
{
    for (int id = 0; id < HF_SET_MAX; id++) {
        if (strcmp(hf_settings_table[id].name, name) == 0) {
            return (enum hf_set_id)id;
        }
    }
    return HF_SET_MAX;
}

/* The index of `word` in a row's words, or -1. */
static int word_index(const char *words, const char *word)
{
    size_t len = strlen(word);
    int index = 0;
    for (const char *p = words; *p != '\0'; index++) {
        size_t n = strcspn(p, " ");
        if (n == len && strncmp(p, word, n) == 0) {
            return index;
        }
        p += n + strspn(p + n, " ");
    }
    return -1;
}

static enum hf_rc bool_parse(const char *text, int64_t *ret, struct hf_err *err)
{
    int index = word_index("false true", text);
    if (index < 0) {
        return hf_hint(err, hf_fail(err, HF_EINVAL, "'%s' is neither true nor false", text),
                       "Write true or false.");
    }
    *ret = index;
    return HF_OK;
}

static enum hf_rc enum_parse(const struct hf_setting *row, const char *text, int64_t *ret,
                             struct hf_err *err)
{
    int index = word_index(row->words, text);
    if (index < 0) {
        return hf_hint(err, hf_fail(err, HF_EINVAL, "'%s' is not one of its words", text),
                       "The words are: %s.", row->words);
    }
    *ret = index;
    return HF_OK;
}

static enum hf_rc duration_parse(const struct hf_setting *row, const char *text, int64_t *ret,
                                 struct hf_err *err)
{
    uint64_t ms = 0;
    if (row->words != NULL && strcmp(text, row->words) == 0) {
        *ret = (int64_t)HF_SET_WORD;
        return HF_OK;
    }
    enum hf_rc rc = hf_duration_parse(text, &ms, err);
    if (rc != HF_OK && row->words != NULL) {
        return hf_hint(err, rc, "Write it like 90s, 5m, 1h30m or 250ms, or '%s'.", row->words);
    }
    *ret = (int64_t)ms;
    return rc;
}

static enum hf_rc signal_parse(const char *text, int64_t *ret, struct hf_err *err)
{
    int sig = 0;
    HF_TRY(hf_signal_parse(text, &sig, err));
    *ret = sig;
    return HF_OK;
}

static bool has_bounds(const struct hf_setting *row)
{
    return row->min != 0 || row->max != 0;
}

/* What is allowed. */
static enum hf_rc bounds_hint(const struct hf_setting *row, enum hf_rc rc, struct hf_err *err)
{
    if (row->type == HF_SET_DURATION) {
        char min[HF_DURATION_STRLEN];
        char max[HF_DURATION_STRLEN];
        return hf_hint(err, rc, "It may be from %s to %s.",
                       hf_duration_format((uint64_t)row->min, min),
                       hf_duration_format((uint64_t)row->max, max));
    }
    return hf_hint(err, rc, "It may be from %lld to %lld%s.", (long long)row->min,
                   (long long)row->max, row->type == HF_SET_BYTES ? " bytes" : "");
}

static enum hf_rc bounds_check(const struct hf_setting *row, const char *text, int64_t num,
                               struct hf_err *err)
{
    if (!has_bounds(row) || (num >= row->min && num <= row->max)) {
        return HF_OK;
    }
    enum hf_rc rc =
        hf_fail(err, HF_EINVAL, "'%s' is too %s", text, num < row->min ? "small" : "large");
    return bounds_hint(row, rc, err);
}

/* Fills *ret_num or *ret_list by the row's type. ret_list is empty before. */
static enum hf_rc value_parse(const struct hf_setting *row, const char *text, int64_t *ret_num,
                              struct hf_strv *ret_list, struct hf_err *err)
{
    enum hf_rc rc = HF_OK;
    *ret_num = 0;
    if (*text == '\0' && row->type != HF_SET_WORDS) {
        return hf_hint(err, hf_fail(err, HF_EINVAL, "the value is empty"),
                       "Give one, or leave '%s' out.", row->name);
    }
    switch (row->type) {
    case HF_SET_TEXT:
    case HF_SET_PATH:
        return HF_OK;
    case HF_SET_PATHS:
        hf_strv_add(ret_list, text);
        return HF_OK;
    case HF_SET_WORDS:
        return hf_words_split(text, ret_list, err);
    case HF_SET_NAME:
        return hf_run_name_check(text, err);
    case HF_SET_BOOL:
        return bool_parse(text, ret_num, err);
    case HF_SET_ENUM:
        return enum_parse(row, text, ret_num, err);
    case HF_SET_SIGNAL:
        return signal_parse(text, ret_num, err);
    case HF_SET_INT:
        rc = hf_int_parse(text, ret_num, err);
        break;
    case HF_SET_DURATION:
        rc = duration_parse(row, text, ret_num, err);
        break;
    case HF_SET_BYTES:
        rc = hf_bytes_parse(text, ret_num, err);
        break;
    }
    if (rc != HF_OK && has_bounds(row) && err != NULL && err->hint[0] == '\0') {
        return bounds_hint(row, rc, err);
    }
    HF_TRY(rc);
    return bounds_check(row, text, *ret_num, err);
}

static void value_clear(struct value *v)
{
    hf_free(v->where);
    hf_free(v->text);
    hf_strv_clear(&v->list);
    *v = (struct value){0};
}

enum hf_rc hf_settings_set(struct hf_settings *s, enum hf_set_id id, enum hf_origin origin,
                           const char *where, const char *text, struct hf_err *err)
{
    const struct hf_setting *row = &hf_settings_table[id];
    struct value *v = &s->values[id];
    struct hf_strv list = {0};
    int64_t num = 0;
    enum hf_rc rc = value_parse(row, text, &num, &list, err);
    if (rc != HF_OK) {
        hf_strv_clear(&list);
        return hf_wrap(err, rc, "%s", where);
    }
    bool known = s->command == 0 || (row->commands & s->command) != 0;
    if (!known || (v->set && origin < v->origin)) {
        hf_strv_clear(&list);
        return HF_OK;
    }
    if (row->type == HF_SET_PATHS && v->set && v->origin == origin) {
        hf_strv_add(&v->list, text);
        hf_strv_clear(&list);
        return HF_OK;
    }
    /* `where` may be this value's own. */
    struct value next = {.origin = origin,
                         .set = true,
                         .where = hf_strdup(where),
                         .text = hf_strdup(text),
                         .num = num,
                         .list = list};
    value_clear(v);
    *v = next;
    return HF_OK;
}

struct hf_settings *hf_settings_new(void)
{
    struct hf_settings *s = HF_NEW(struct hf_settings);
    for (int id = 0; id < HF_SET_MAX; id++) {
        const char *fallback = hf_settings_table[id].fallback;
        if (fallback != NULL) {
            enum hf_rc rc =
                hf_settings_set(s, (enum hf_set_id)id, HF_FROM_DEFAULT, "", fallback, NULL);
            assert(rc == HF_OK);
            (void)rc;
        }
    }
    s->rest = hf_calloc(1, sizeof(char *));
    return s;
}

void hf_settings_free(struct hf_settings *s)
{
    if (s == NULL) {
        return;
    }
    for (int id = 0; id < HF_SET_MAX; id++) {
        value_clear(&s->values[id]);
    }
    hf_free(s->rest);
    hf_free(s);
}

/* Flags. */

static const struct {
    unsigned bit;
    const char *name;
} command_names[] = {{HF_FOR_RUN, "run"},   {HF_FOR_DRILL, "drill"}, {HF_FOR_STATUS, "status"},
                     {HF_FOR_CKPT, "ckpt"}, {HF_FOR_LOGS, "logs"},   {HF_FOR_DOCTOR, "doctor"}};

static const char *command_name(unsigned command)
{
    for (size_t i = 0; i < HF_COUNT(command_names); i++) {
        if ((command_names[i].bit & command) != 0) {
            return command_names[i].name;
        }
    }
    return "";
}

static enum hf_rc foreign_flag(const char *flag, const char *mine, unsigned commands,
                               struct hf_err *err)
{
    struct hf_buf names;
    hf_buf_init(&names, 200);
    enum hf_rc rc = HF_OK;
    for (size_t i = 0; i < HF_COUNT(command_names) && rc == HF_OK; i++) {
        if ((command_names[i].bit & commands) != 0) {
            rc = hf_buf_addf(&names, NULL, "%s'holdfast %s'", names.len > 0 ? ", " : "",
                             command_names[i].name);
        }
    }
    rc = hf_hint(err, hf_fail(err, HF_EINVAL, "flag '%s' is not for '%s'", flag, mine),
                 "It belongs to %s.", hf_buf_str(&names));
    hf_buf_release(&names);
    return rc;
}

static enum hf_rc unknown_flag(const struct hf_settings *s, const char *flag, const char *name,
                               struct hf_err *err)
{
    const char *mine = command_name(s->command);
    enum hf_set_id other = hf_settings_find(name);
    if (other != HF_SET_MAX) {
        return foreign_flag(flag, mine, hf_settings_table[other].commands, err);
    }
    const char *names[HF_SET_MAX + 2];
    size_t n = 0;
    for (int id = 0; id < HF_SET_MAX; id++) {
        if ((hf_settings_table[id].commands & s->command) != 0) {
            names[n++] = hf_settings_table[id].name;
        }
    }
    names[n++] = "help";
    names[n] = NULL;
    const char *nearest = hf_nearest(name, names);
    enum hf_rc rc = hf_fail(err, HF_EINVAL, "unknown flag '%s'", flag);
    if (nearest != NULL) {
        return hf_hint(err, rc, "Did you mean '--%s'?", nearest);
    }
    return hf_hint(err, rc, "'holdfast %s --help' lists the flags.", mine);
}

/* One flag at argv[*at], which is left at the flag's last word. */
static enum hf_rc long_flag(struct hf_settings *s, char *const *argv, size_t *at,
                            struct hf_err *err)
{
    const char *flag = argv[*at];
    const char *equals = strchr(flag, '=');
    size_t len = equals != NULL ? (size_t)(equals - flag) : strlen(flag);
    HF_CLEANUP(hf_freep) char *shown = hf_strndup(flag, len);
    const char *name = shown + 2;
    enum hf_set_id id = hf_settings_find(name);
    bool off = false;
    if (id == HF_SET_MAX && strncmp(name, "no-", 3) == 0) {
        id = hf_settings_find(name + 3);
        off = id != HF_SET_MAX && hf_settings_table[id].type == HF_SET_BOOL;
        id = off ? id : HF_SET_MAX;
    }
    if (id == HF_SET_MAX || (s->command != 0 && !(hf_settings_table[id].commands & s->command))) {
        return unknown_flag(s, shown, off ? name + 3 : name, err);
    }
    const struct hf_setting *row = &hf_settings_table[id];
    if (off && equals != NULL) {
        return hf_fail(err, HF_EINVAL, "flag '%s' takes no value", shown);
    }
    if (equals != NULL) {
        return hf_settings_set(s, id, HF_FROM_FLAG, shown, equals + 1, err);
    }
    if (row->type == HF_SET_BOOL) {
        return hf_settings_set(s, id, HF_FROM_FLAG, shown, off ? "false" : "true", err);
    }
    const char *value = argv[*at + 1];
    if (value == NULL || strcmp(value, "--") == 0) {
        return hf_hint(err, hf_fail(err, HF_EINVAL, "flag '%s' has no value", shown),
                       "Write '%s %s'.", shown, row->arg);
    }
    (*at)++;
    return hf_settings_set(s, id, HF_FROM_FLAG, shown, value, err);
}

static enum hf_rc short_flag(struct hf_settings *s, const char *flag, struct hf_err *err)
{
    for (int id = 0; flag[2] == '\0' && id < HF_SET_MAX; id++) {
        const struct hf_setting *row = &hf_settings_table[id];
        if (row->letter == flag[1] && (s->command == 0 || (row->commands & s->command) != 0)) {
            return hf_settings_set(s, (enum hf_set_id)id, HF_FROM_FLAG, flag, "true", err);
        }
    }
    return unknown_flag(s, flag, flag + 1, err);
}

static enum hf_rc read_flags(struct hf_settings *s, char *const *argv, bool mixed,
                             struct hf_err *err)
{
    size_t n = 0;
    while (argv[n] != NULL) {
        n++;
    }
    hf_free(s->rest);
    s->rest = hf_calloc(n + 1, sizeof(char *));
    size_t rest = 0;
    size_t i = 0;
    for (; i < n && strcmp(argv[i], "--") != 0; i++) {
        if (argv[i][0] != '-' || argv[i][1] == '\0') {
            if (!mixed) {
                break;
            }
            s->rest[rest++] = argv[i];
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            s->help = true;
            return HF_OK;
        } else {
            HF_TRY(argv[i][1] == '-' ? long_flag(s, argv, &i, err) : short_flag(s, argv[i], err));
        }
    }
    i += i < n && strcmp(argv[i], "--") == 0;
    for (; i < n; i++) {
        s->rest[rest++] = argv[i];
    }
    return HF_OK;
}

/* Environment, file, computed defaults. */

static const char *env_get(char *const *env, const char *name)
{
    size_t len = strlen(name);
    for (; *env != NULL; env++) {
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=') {
            return *env + len + 1;
        }
    }
    return NULL;
}

static enum hf_rc read_env(struct hf_settings *s, char *const *env, struct hf_err *err)
{
    for (int id = 0; id < HF_SET_MAX; id++) {
        const struct hf_setting *row = &hf_settings_table[id];
        const char *text = row->env != NULL ? env_get(env, row->env) : NULL;
        if (text == NULL || *text == '\0' || !(row->commands & s->command)) {
            continue;
        }
        if (row->type != HF_SET_PATHS) {
            HF_TRY(hf_settings_set(s, (enum hf_set_id)id, HF_FROM_ENV, row->env, text, err));
            continue;
        }
        for (const char *p = text; p != NULL;) {
            size_t len = strcspn(p, ":");
            HF_CLEANUP(hf_freep) char *part = hf_strndup(p, len);
            if (len > 0) {
                HF_TRY(hf_settings_set(s, (enum hf_set_id)id, HF_FROM_ENV, row->env, part, err));
            }
            p = p[len] == ':' ? p + len + 1 : NULL;
        }
    }
    return HF_OK;
}

/* $`variable`/holdfast, or ~/`below_home`/holdfast; NULL when neither is known. A relative
 * value is ignored, as the XDG rules ask. The caller frees. */
static char *user_folder(char *const *env, const char *variable, const char *below_home)
{
    const char *base = env_get(env, variable);
    if (base != NULL && base[0] == '/') {
        return hf_asprintf("%s/holdfast", base);
    }
    const char *home = env_get(env, "HOME");
    if (home != NULL && home[0] == '/') {
        return hf_asprintf("%s/%s/holdfast", home, below_home);
    }
    return NULL;
}

static enum hf_rc read_file(struct hf_settings *s, char *const *env, struct hf_err *err)
{
    const char *home = env_get(env, "HOME");
    const char *named = hf_set_str(s, HF_SET_CONFIG);
    if (named != NULL) {
        return hf_settings_file(s, named, home, err);
    }
    if (hf_fs_exists("holdfast.yaml")) {
        return hf_settings_file(s, "holdfast.yaml", home, err);
    }
    HF_CLEANUP(hf_freep) char *folder = user_folder(env, "XDG_CONFIG_HOME", ".config");
    HF_CLEANUP(hf_freep)
    char *path = folder != NULL ? hf_asprintf("%s/config.yaml", folder) : NULL;
    return path != NULL && hf_fs_exists(path) ? hf_settings_file(s, path, home, err) : HF_OK;
}

/* The state folder names a store and sockets, which other processes reach from other folders. */
static enum hf_rc make_absolute(struct hf_settings *s, enum hf_set_id id, struct hf_err *err)
{
    struct value *v = &s->values[id];
    char cwd[PATH_MAX];
    if (getcwd(cwd, sizeof(cwd)) == NULL) {
        return hf_fail_errno(err, errno, "find the working folder");
    }
    char *path = hf_path_from(cwd, v->text);
    hf_free(v->text);
    v->text = path;
    return HF_OK;
}

static enum hf_rc compute_defaults(struct hf_settings *s, char *const *env, struct hf_err *err)
{
    if (s->values[HF_SET_STATE_DIR].set) {
        return make_absolute(s, HF_SET_STATE_DIR, err);
    }
    HF_CLEANUP(hf_freep) char *path = user_folder(env, "XDG_STATE_HOME", ".local/state");
    if (path == NULL) {
        return hf_hint(err,
                       hf_fail(err, HF_EINVAL,
                               "no place for Holdfast's state: HOME and XDG_STATE_HOME are unset"),
                       "Give one with --state-dir PATH.");
    }
    return hf_settings_set(s, HF_SET_STATE_DIR, HF_FROM_DEFAULT, "", path, err);
}

static enum hf_rc check_pairs(const struct hf_settings *s, struct hf_err *err)
{
    static const enum hf_set_id pairs[][2] = {{HF_SET_RESUME, HF_SET_FRESH},
                                              {HF_SET_AFTER, HF_SET_AT_STEP},
                                              {HF_SET_NOTICE, HF_SET_NO_NOTICE},
                                              {HF_SET_QUIET, HF_SET_DEBUG}};
    for (size_t i = 0; i < HF_COUNT(pairs); i++) {
        const struct value *a = &s->values[pairs[i][0]];
        const struct value *b = &s->values[pairs[i][1]];
        bool off = (hf_settings_table[pairs[i][0]].type == HF_SET_BOOL && a->num == 0) ||
                   (hf_settings_table[pairs[i][1]].type == HF_SET_BOOL && b->num == 0);
        if (!off && a->origin == HF_FROM_FLAG && b->origin == HF_FROM_FLAG) {
            return hf_hint(
                err,
                hf_fail(err, HF_EINVAL, "'%s' and '%s' exclude each other", a->where, b->where),
                "Give one of them.");
        }
    }
    return HF_OK;
}

enum hf_rc hf_settings_load(struct hf_settings *s, const struct hf_settings_in *in,
                            struct hf_err *err)
{
    s->command = in->command;
    HF_TRY(read_flags(s, in->argv, in->mixed, err));
    if (s->help) {
        return HF_OK;
    }
    HF_TRY(check_pairs(s, err));
    HF_TRY(read_env(s, in->env, err));
    HF_TRY(read_file(s, in->env, err));
    return compute_defaults(s, in->env, err);
}

/* Getters. */

bool hf_settings_help(const struct hf_settings *s)
{
    return s->help;
}

char *const *hf_settings_rest(const struct hf_settings *s)
{
    return s->rest;
}

const char *hf_set_str(const struct hf_settings *s, enum hf_set_id id)
{
    return s->values[id].text;
}

struct hf_store_cfg hf_set_store(const struct hf_settings *s)
{
    return (struct hf_store_cfg){.survives = hf_set_bool(s, HF_SET_STORE_SURVIVES),
                                 .endpoint = hf_set_str(s, HF_SET_STORE_ENDPOINT),
                                 .region = hf_set_str(s, HF_SET_STORE_REGION),
                                 .no_checksum =
                                     hf_set_int(s, HF_SET_STORE_CHECKSUM) == HF_STORE_CHECKSUM_NONE,
                                 .tls_1_3 = hf_set_int(s, HF_SET_TLS) == HF_TLS_1_3};
}

bool hf_set_bool(const struct hf_settings *s, enum hf_set_id id)
{
    assert(hf_settings_table[id].type == HF_SET_BOOL);
    return s->values[id].num != 0;
}

int64_t hf_set_int(const struct hf_settings *s, enum hf_set_id id)
{
    enum hf_set_type type = hf_settings_table[id].type;
    assert(type == HF_SET_INT || type == HF_SET_BYTES || type == HF_SET_SIGNAL ||
           type == HF_SET_ENUM);
    (void)type;
    return s->values[id].set ? s->values[id].num : -1;
}

uint64_t hf_set_ms(const struct hf_settings *s, enum hf_set_id id)
{
    assert(hf_settings_table[id].type == HF_SET_DURATION);
    return (uint64_t)s->values[id].num;
}

const struct hf_strv *hf_set_list(const struct hf_settings *s, enum hf_set_id id)
{
    enum hf_set_type type = hf_settings_table[id].type;
    assert(type == HF_SET_PATHS || type == HF_SET_WORDS);
    (void)type;
    return &s->values[id].list;
}

bool hf_set_given(const struct hf_settings *s, enum hf_set_id id)
{
    return s->values[id].origin != HF_FROM_DEFAULT;
}

enum hf_origin hf_set_origin(const struct hf_settings *s, enum hf_set_id id)
{
    return s->values[id].origin;
}

const char *hf_set_where(const struct hf_settings *s, enum hf_set_id id)
{
    return s->values[id].where != NULL ? s->values[id].where : "";
}
