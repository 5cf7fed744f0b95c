/* SPDX-License-Identifier: Apache-2.0
 *
 * The command runner: finds the command, fills its settings, prints help and complaints, calls
 * it and checks that its output got out. Main thread. It knows no command by name and starts no
 * loop, thread or process.
 */
#include "base/prelude.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "supervisor/cmd.h"
#include "supervisor/manual.h"
#include "supervisor/precheck.h"

#define HELP_COLUMN 28
#define NAMES_MAX   32
#define USAGE_LEN   48

/* "-q, --quiet", "--every DURATION". */
static const char *flag_usage(const struct hf_setting *row, char out[USAGE_LEN])
{
    char letter[5] = "";
    if (row->letter != 0) {
        (void)snprintf(letter, sizeof letter, "-%c, ", row->letter);
    }
    (void)snprintf(out, USAGE_LEN, "%s--%s%s%s", letter, row->name, row->arg != NULL ? " " : "",
                   row->arg != NULL ? row->arg : "");
    return out;
}

static void print_row(FILE *out, const char *left, const char *text)
{
    if (strlen(left) + 3 > HELP_COLUMN) {
        (void)fprintf(out, "  %s\n%*s%s", left, HELP_COLUMN, "", text);
    } else {
        (void)fprintf(out, "  %-*s%s", HELP_COLUMN - 2, left, text);
    }
}

static void print_env_rule(FILE *out, unsigned group)
{
    (void)fprintf(out,
                  "\nA flag marked * can also stand in the settings file (every: 10m) and in the\n"
                  "environment (HOLDFAST_EVERY=10m). Flags win over it, and it over the file.\n");
    for (int id = 0; id < HF_SET_MAX; id++) {
        const struct hf_setting *row = &hf_settings_table[id];
        if (row->env == NULL || !(row->commands & group)) {
            continue;
        }
        HF_CLEANUP(hf_freep) char *rule = hf_derived_env(row->name);
        if (strcmp(rule, row->env) != 0) {
            (void)fprintf(out, "In the environment --%s is %s.\n", row->name, row->env);
        }
    }
}

static void print_command_help(FILE *out, const struct hf_cmd *cmd)
{
    (void)fprintf(out, "usage: holdfast %s %s\n\n%s\n", cmd->name, cmd->args,
                  cmd->about != NULL ? cmd->about : cmd->summary);
    (void)fprintf(out, "\nflags:\n");
    for (int id = 0; id < HF_SET_MAX; id++) {
        const struct hf_setting *row = &hf_settings_table[id];
        if (!(row->commands & cmd->group)) {
            continue;
        }
        char usage[USAGE_LEN];
        print_row(out, flag_usage(row, usage), row->help);
        if (row->fallback != NULL && row->type != HF_SET_BOOL) {
            (void)fprintf(out, " (%s)", row->fallback);
        }
        (void)fprintf(out, "%s\n", row->env != NULL ? " *" : "");
    }
    print_row(out, "-h, --help", "this text\n");
    print_env_rule(out, cmd->group);
}

static void print_help(FILE *out, const struct hf_cmd *const *cmds)
{
    (void)fprintf(out, "usage: holdfast COMMAND [options]...\n\n"
                       "Keeps training alive on machines that can be taken away.\n\ncommands:\n");
    for (; *cmds != NULL; cmds++) {
        print_row(out, (*cmds)->name, (*cmds)->summary);
        (void)fputc('\n', out);
    }
    (void)fprintf(out, "\n'holdfast help COMMAND' explains one; 'holdfast --version' prints the "
                       "version.\n'holdfast help man [COMMAND]' is the manual, 'holdfast help "
                       "completion bash|zsh|fish'\nwhat a shell completes with.\n");
}

static const struct hf_cmd *find_command(const struct hf_cmd *const *cmds, const char *name)
{
    for (; *cmds != NULL; cmds++) {
        if (strcmp((*cmds)->name, name) == 0) {
            return *cmds;
        }
    }
    return NULL;
}

static int complain(const struct hf_cmd_world *w, int status, const struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *msg = hf_text_clean(err->msg);
    HF_CLEANUP(hf_freep) char *hint = hf_text_clean(err->hint);
    (void)fprintf(w->err_out, "holdfast: error: %s\n", msg);
    if (hint[0] != '\0') {
        (void)fprintf(w->err_out, "holdfast: %s\n", hint);
    }
    return status;
}

/* wraps: the word may be the program that was to be wrapped. */
static int unknown_command(const struct hf_cmd_world *w, const char *name, bool wraps)
{
    const char *names[NAMES_MAX];
    size_t n = 0;
    for (const struct hf_cmd *const *c = w->cmds; *c != NULL && n + 2 < NAMES_MAX; c++) {
        names[n++] = (*c)->name;
    }
    names[n++] = "help";
    names[n] = NULL;
    static const char *const flags[] = {"--help", "--version", NULL};
    bool flag = name[0] == '-';
    struct hf_err err = {0};
    (void)hf_fail(&err, HF_EINVAL, "unknown %s '%s'", flag ? "flag" : "command", name);
    const char *nearest = hf_nearest(name, flag ? flags : names);
    nearest = nearest == NULL && flag ? hf_nearest(name + strspn(name, "-"), names) : nearest;
    if (nearest != NULL) {
        (void)hf_hint(&err, HF_EINVAL, "Did you mean 'holdfast %s'?", nearest);
    } else if (!flag && wraps) {
        (void)hf_hint(&err, HF_EINVAL,
                      "'holdfast run -- %s' wraps a program; 'holdfast help' lists the commands.",
                      name);
    } else {
        (void)hf_hint(&err, HF_EINVAL, "'holdfast help' lists the commands.");
    }
    return complain(w, HF_EXIT_USAGE, &err);
}

/* `help`, `help COMMAND`, `help man COMMAND`: words after the last one that means something. */
static int too_many(const struct hf_cmd_world *w, const char *word)
{
    struct hf_err err = {0};
    (void)hf_hint(&err, hf_fail(&err, HF_EINVAL, "'%s' is one word too many", word),
                  "'holdfast help' lists the commands.");
    return complain(w, HF_EXIT_USAGE, &err);
}

static int made_from_tables(const struct hf_cmd_world *w, char *const *argv)
{
    struct hf_err err = {0};
    if (argv[1] != NULL && argv[2] != NULL) {
        return too_many(w, argv[2]);
    }
    if (strcmp(argv[0], "completion") == 0) {
        if (argv[1] != NULL && hf_completion_print(w->out, w->cmds, argv[1])) {
            return HF_EXIT_OK;
        }
        (void)hf_hint(&err,
                      hf_fail(&err, HF_EINVAL, "no completion for shell '%s'",
                              argv[1] != NULL ? argv[1] : ""),
                      "Use: holdfast help completion bash|zsh|fish.");
        return complain(w, HF_EXIT_USAGE, &err);
    }
    const struct hf_cmd *cmd = argv[1] != NULL ? find_command(w->cmds, argv[1]) : NULL;
    if (argv[1] != NULL && cmd == NULL) {
        return unknown_command(w, argv[1], false);
    }
    hf_manual_print(w->out, w->cmds, cmd);
    return HF_EXIT_OK;
}

static int help_command(const struct hf_cmd_world *w, char *const *argv)
{
    if (argv[0] == NULL) {
        print_help(w->out, w->cmds);
        return HF_EXIT_OK;
    }
    if (strcmp(argv[0], "man") == 0 || strcmp(argv[0], "completion") == 0) {
        return made_from_tables(w, argv);
    }
    const struct hf_cmd *cmd = find_command(w->cmds, argv[0]);
    if (cmd == NULL) {
        return unknown_command(w, argv[0], false);
    }
    if (argv[1] != NULL) {
        return too_many(w, argv[1]);
    }
    print_command_help(w->out, cmd);
    return HF_EXIT_OK;
}

static int run_command(const struct hf_cmd_world *w, const struct hf_cmd *cmd,
                       struct hf_settings *s, char *const *argv)
{
    struct hf_err err = {0};
    struct hf_settings_in in = {
        .command = cmd->group, .argv = argv, .env = w->env, .mixed = !cmd->wraps};
    if (hf_settings_load(s, &in, &err) != HF_OK) {
        return complain(w, cmd->usage_status, &err);
    }
    if (hf_settings_help(s)) {
        print_command_help(w->out, cmd);
        return HF_EXIT_OK;
    }
    char *const *rest = hf_settings_rest(s);
    if (cmd->wraps && hf_precheck(s, rest, &err) != HF_OK) {
        return complain(w, cmd->usage_status, &err);
    }
    int argc = 0;
    while (rest[argc] != NULL) {
        argc++;
    }
    struct hf_log log = {.fd = w->err_fd,
                         .min = HF_LOG_INFO,
                         .format = (enum hf_log_format)hf_set_int(s, HF_SET_LOG_FORMAT),
                         .prefix = "holdfast: "};
    if (hf_set_bool(s, HF_SET_DEBUG)) {
        log.min = HF_LOG_DEBUG;
    } else if (hf_set_bool(s, HF_SET_QUIET)) {
        log.min = HF_LOG_WARN;
    }
    struct hf_cmd_ctx ctx = {.cmd = cmd,
                             .settings = s,
                             .argc = argc,
                             .argv = rest,
                             .env = w->env,
                             .log = &log,
                             .out = w->out,
                             .inherited = w->inherited};
    return cmd->run(&ctx);
}

static int dispatch(const struct hf_cmd_world *w, int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    if (name == NULL) {
        print_help(w->err_out, w->cmds);
        return HF_EXIT_USAGE;
    }
    if (strcmp(name, "--version") == 0 && argc > 2) {
        return too_many(w, argv[2]);
    }
    if (strcmp(name, "--version") == 0) {
        (void)fprintf(w->out, "holdfast " HF_VERSION "\n");
        return HF_EXIT_OK;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        return help_command(w, argv + 2);
    }
    const struct hf_cmd *cmd = find_command(w->cmds, name);
    if (cmd == NULL) {
        return unknown_command(w, name, argc > 2);
    }
    struct hf_settings *s = hf_settings_new();
    int status = run_command(w, cmd, s, argv + 2);
    hf_settings_free(s);
    return status;
}

int hf_cmd_dispatch(const struct hf_cmd_world *world, int argc, char **argv)
{
    int status = dispatch(world, argc, argv);
    if (fflush(world->out) != 0 || ferror(world->out) != 0) {
        (void)fprintf(world->err_out, "holdfast: error: cannot write to stdout\n");
        return status == HF_EXIT_OK ? HF_EXIT_FAIL : status;
    }
    return status;
}
