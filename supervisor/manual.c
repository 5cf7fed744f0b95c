/* SPDX-License-Identifier: Apache-2.0
 *
 * Manual pages in roff, from the tables of commands and settings. Nothing here knows a command or a
 * setting by name. A word that roff would take for its own is escaped.
 */
#include "base/prelude.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "supervisor/manual.h"

char *hf_derived_env(const char *name)
{
    char *env = hf_asprintf("HOLDFAST_%s", name);
    for (char *p = env; *p != '\0'; p++) {
        if (*p == '-') {
            *p = '_';
        } else if (*p >= 'a' && *p <= 'z') {
            *p = (char)(*p - 'a' + 'A');
        }
    }
    return env;
}

/* Text with roff's own characters escaped; a line that starts with a full stop is no request. */
static void put(FILE *out, const char *text)
{
    bool start = true;
    for (const char *p = text; *p != '\0'; p++) {
        if (start && (*p == '.' || *p == '\'')) {
            (void)fputs("\\&", out);
        }
        if (*p == '\\') {
            (void)fputs("\\e", out);
        } else if (*p == '-') {
            (void)fputs("\\-", out);
        } else {
            (void)fputc(*p, out);
        }
        start = *p == '\n';
    }
}

static void section(FILE *out, const char *name)
{
    (void)fprintf(out, ".SH %s\n", name);
}

/* A sentence from a line without a capital and a full stop. */
static void sentence(FILE *out, const char *line)
{
    char first[2] = {line[0], '\0'};
    if (first[0] >= 'a' && first[0] <= 'z') {
        first[0] = (char)(first[0] - 'a' + 'A');
    }
    put(out, first);
    put(out, first[0] != '\0' ? line + 1 : "");
    (void)fputs(".\n", out);
}

static void head(FILE *out, const char *name, const char *summary)
{
    (void)fputs(".TH \"", out);
    for (const char *p = name; *p != '\0'; p++) {
        if (*p == '-') {
            (void)fputs("\\-", out);
        } else {
            (void)fputc(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p, out);
        }
    }
    (void)fprintf(out, "\" 1 \"\" \"holdfast %s\" \"Holdfast\"\n.nh\n.ad l\n", HF_VERSION);
    section(out, "NAME");
    put(out, name);
    (void)fputs(" \\- ", out);
    put(out, summary);
    (void)fputc('\n', out);
}

static void put_bound(FILE *out, const struct hf_setting *row, int64_t bound)
{
    char d[HF_DURATION_STRLEN];
    if (row->type == HF_SET_DURATION) {
        put(out, hf_duration_format((uint64_t)bound, d));
    } else {
        (void)fprintf(out, "%lld", (long long)bound);
    }
}

/* Default, bounds, words, environment and file of a setting. */
static void facts(FILE *out, const struct hf_setting *row)
{
    if (row->type == HF_SET_ENUM) {
        (void)fputs("One of: ", out);
        put(out, row->words);
        (void)fputs(".\n", out);
    }
    if (row->min != 0 || (row->max != 0 && row->max != INT64_MAX)) {
        (void)fputs("From ", out);
        put_bound(out, row, row->min);
        if (row->max != 0 && row->max != INT64_MAX) {
            (void)fputs(" to ", out);
            put_bound(out, row, row->max);
        }
        (void)fprintf(out, "%s.\n", row->type == HF_SET_BYTES ? " bytes" : "");
    }
    if (row->fallback != NULL && row->type != HF_SET_BOOL) {
        (void)fputs("Default: ", out);
        put(out, row->fallback);
        (void)fputs(".\n", out);
    }
    if (row->env != NULL) {
        (void)fputs("Environment:\n.BR ", out);
        put(out, row->env);
        (void)fputs(" .\n", out);
        bool in_file = row - hf_settings_table != HF_SET_CONFIG;
        if (in_file) {
            (void)fputs("In a settings file:\n.BR ", out);
            put(out, row->name);
            (void)fputs(" .\n", out);
        }
    }
}

static void option(FILE *out, const struct hf_setting *row)
{
    (void)fputs(".TP\n", out);
    if (row->letter != 0) {
        (void)fprintf(out, "\\fB\\-%c\\fR, ", row->letter);
    }
    (void)fputs("\\fB\\-\\-", out);
    put(out, row->name);
    (void)fputs("\\fR", out);
    if (row->arg != NULL) {
        (void)fputs(" \\fI", out);
        put(out, row->arg);
        (void)fputs("\\fR", out);
    }
    if (row->type == HF_SET_BOOL) {
        (void)fputs(", \\fB\\-\\-no\\-", out);
        put(out, row->name);
        (void)fputs("\\fR", out);
    }
    (void)fputc('\n', out);
    sentence(out, row->help);
    facts(out, row);
}

/* "STATUS: meaning" lines as a list. */
static void exits(FILE *out, const char *lines)
{
    section(out, "EXIT STATUS");
    while (*lines != '\0') {
        size_t colon = strcspn(lines, ":");
        size_t end = strcspn(lines, "\n");
        HF_CLEANUP(hf_freep) char *status = hf_strndup(lines, colon);
        HF_CLEANUP(hf_freep) char *meaning = hf_strndup(lines + colon + 2, end - colon - 2);
        (void)fputs(".TP\n.B ", out);
        put(out, status);
        (void)fputc('\n', out);
        sentence(out, meaning);
        lines += end + (lines[end] == '\n');
    }
}

static void files(FILE *out)
{
    static const struct {
        const char *path, *what;
    } rows[] = {
        {"holdfast.yaml", "settings, in the working folder: lines like 'every: 10m'"},
        {"~/.config/holdfast/config.yaml",
         "settings, where there is no holdfast.yaml; below $XDG_CONFIG_HOME if that is set"},
        {"~/.local/state/holdfast",
         "the state folder: runs, their logs and events, the default store; below $XDG_STATE_HOME "
         "if that is set"},
    };
    section(out, "FILES");
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        (void)fputs(".TP\n.I ", out);
        put(out, rows[i].path);
        (void)fputc('\n', out);
        sentence(out, rows[i].what);
    }
}

static void see_also(FILE *out, const struct hf_cmd *const *cmds, const struct hf_cmd *mine)
{
    section(out, "SEE ALSO");
    if (mine != NULL) {
        (void)fputs(".BR holdfast (1)\n", out);
    }
    for (; *cmds != NULL; cmds++) {
        if (*cmds != mine) {
            (void)fputs(".BR holdfast\\-", out);
            put(out, (*cmds)->name);
            (void)fputs(" (1)\n", out);
        }
    }
}

static void command_page(FILE *out, const struct hf_cmd *const *cmds, const struct hf_cmd *cmd)
{
    HF_CLEANUP(hf_freep) char *name = hf_asprintf("holdfast-%s", cmd->name);
    head(out, name, cmd->summary);
    section(out, "SYNOPSIS");
    (void)fputs(".B holdfast ", out);
    put(out, cmd->name);
    (void)fputc('\n', out);
    put(out, cmd->args);
    (void)fputc('\n', out);
    section(out, "DESCRIPTION");
    if (cmd->about != NULL) {
        put(out, cmd->about);
        (void)fputc('\n', out);
    } else {
        sentence(out, cmd->summary);
    }
    section(out, "OPTIONS");
    (void)fputs(
        "Flags win over the environment, it over the settings file, it over the defaults.\n", out);
    for (int id = 0; id < HF_SET_MAX; id++) {
        if ((hf_settings_table[id].commands & cmd->group) != 0) {
            option(out, &hf_settings_table[id]);
        }
    }
    (void)fputs(".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nShort help.\n", out);
    exits(out, cmd->exits);
    files(out);
    see_also(out, cmds, cmd);
}

void hf_manual_print(FILE *out, const struct hf_cmd *const *cmds, const struct hf_cmd *cmd)
{
    if (cmd != NULL) {
        command_page(out, cmds, cmd);
        return;
    }
    head(out, "holdfast", "keeps training alive on machines that can be taken away");
    section(out, "SYNOPSIS");
    (void)fputs(".B holdfast\n.I COMMAND\n[options]...\n", out);
    section(out, "DESCRIPTION");
    (void)fputs(
        "Holdfast wraps a training command on a machine that may be taken away: it sees the\n"
        "notice, gets the newest training state safely into a store before the machine\n"
        "goes, and the same command again goes on from there.\n",
        out);
    section(out, "COMMANDS");
    for (const struct hf_cmd *const *c = cmds; *c != NULL; c++) {
        (void)fputs(".TP\n.BR holdfast\\-", out);
        put(out, (*c)->name);
        (void)fputs(" (1)\n", out);
        sentence(out, (*c)->summary);
    }
    (void)fputs(".TP\n\\fBholdfast help\\fR [\\fICOMMAND\\fR]\nShort help.\n"
                ".TP\n\\fBholdfast help man\\fR [\\fICOMMAND\\fR]\nThis page, or a command's, as "
                "roff.\n"
                ".TP\n\\fBholdfast help completion\\fR \\fBbash\\fR|\\fBzsh\\fR|\\fBfish\\fR\n"
                "Completion for a shell, to be put where the shell looks for it.\n"
                ".TP\n\\fBholdfast \\-\\-version\\fR\nThe version.\n",
                out);
    exits(out, "0: what was asked for was done\n64: wrong usage\nother: see the commands");
    files(out);
    see_also(out, cmds, NULL);
}
