/* SPDX-License-Identifier: Apache-2.0
 *
 * Shell completion from the tables of commands and settings. What is the same for every command is
 * text here; words, flags and what their values are come from the tables. The user's own command,
 * after the options of one that wraps, is completed as a command line of its own.
 */
#include "base/prelude.h"

#include <stdio.h>
#include <string.h>

#include "supervisor/manual.h"

/* How a value is completed: by words, as a file, as a folder, as a run, or not at all. */
static const char *value_kind(const struct hf_setting *row)
{
    switch (row->type) {
    case HF_SET_ENUM:
        return row->words;
    case HF_SET_PATH:
        return "@file";
    case HF_SET_PATHS:
        return "@folder";
    case HF_SET_NAME:
        return "@run";
    case HF_SET_TEXT:
    case HF_SET_BOOL:
    case HF_SET_INT:
    case HF_SET_DURATION:
    case HF_SET_BYTES:
    case HF_SET_SIGNAL:
    case HF_SET_WORDS:
        break;
    }
    return "@none";
}

/* The words that the first operand may be, from "ls|show RUN | inspect FOLDER": of each alternative
 * its first word. folders: those alone that take a folder. "" when it is no choice of words. The
 * caller frees. */
static char *verbs_of(const struct hf_cmd *cmd, bool folders)
{
    char *verbs = hf_strdup("");
    if (cmd->args[0] == '[' || strcspn(cmd->args, "|") == strlen(cmd->args)) {
        return verbs;
    }
    for (const char *p = cmd->args; p != NULL;) {
        const char *next = strstr(p, " | ");
        size_t len = strcspn(p, " ");
        HF_CLEANUP(hf_freep)
        char *all = hf_strndup(p, next != NULL ? (size_t)(next - p) : strlen(p));
        if (!folders || strstr(all, " FOLDER") != NULL) {
            char *more = hf_asprintf("%s%s%.*s", verbs, verbs[0] != '\0' ? " " : "", (int)len, p);
            hf_free(verbs);
            verbs = more;
        }
        p = next != NULL ? next + 3 : NULL;
    }
    for (char *p = verbs; *p != '\0'; p++) {
        *p = *p == '|' ? ' ' : *p;
    }
    return verbs;
}

static void flags_of(FILE *out, const struct hf_cmd *cmd)
{
    for (int id = 0; id < HF_SET_MAX; id++) {
        if ((hf_settings_table[id].commands & cmd->group) != 0) {
            (void)fprintf(out, "--%s ", hf_settings_table[id].name);
        }
    }
    (void)fputs("--help", out);
}

static void command_words(FILE *out, const struct hf_cmd *const *cmds)
{
    for (; *cmds != NULL; cmds++) {
        (void)fprintf(out, "%s ", (*cmds)->name);
    }
    (void)fputs("help", out);
}

static const char bash_head[] =
    "# bash completion for holdfast, made by 'holdfast help completion bash'\n"
    "_holdfast_runs() {\n"
    "    holdfast status 2>/dev/null | sed -n 's/^\\([A-Za-z0-9][A-Za-z0-9._-]*\\)$/\\1/p'\n"
    "}\n\n"
    "# What a flag's value is: words, or @file, @folder, @run, @none; nothing for a flag alone.\n"
    "_holdfast_value() {\n"
    "    case $1 in\n";

static const char bash_tail[] =
    "_holdfast_give() {\n"
    "    case $1 in\n"
    "    @file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$2\") "
    ";;\n"
    "    @folder) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- \"$2\") "
    ";;\n"
    "    @run) mapfile -t COMPREPLY < <(compgen -W \"$(_holdfast_runs)\" -- \"$2\") ;;\n"
    "    @none) COMPREPLY=() ;;\n"
    "    *) mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$2\") ;;\n"
    "    esac\n"
    "}\n\n"
    "_holdfast() {\n"
    "    COMPREPLY=()\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} cmd=${COMP_WORDS[1]} i word value operands=0 verb=\n"
    "    if [ \"$COMP_CWORD\" -le 1 ]; then\n"
    "        _holdfast_give \"$_holdfast_commands --help --version\" \"$cur\"\n"
    "        return\n"
    "    fi\n"
    "    # Walks to the word under the cursor; bash splits --flag=value into three words.\n"
    "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if [ \"$word\" = -- ]; then\n"
    "            operands=1 i=$((i + 1))\n"
    "            break\n"
    "        fi\n"
    "        value=$(_holdfast_value \"$word\")\n"
    "        if [ -n \"$value\" ]; then\n"
    "            [ \"${COMP_WORDS[i + 1]}\" = = ] && i=$((i + 1))\n"
    "            if [ \"$i\" -ge $((COMP_CWORD - 1)) ]; then\n"
    "                [ \"$cur\" = = ] && cur=\n"
    "                _holdfast_give \"$value\" \"$cur\"\n"
    "                return\n"
    "            fi\n"
    "            i=$((i + 1))\n"
    "        elif [ \"${word#-}\" = \"$word\" ]; then\n"
    "            operands=$((operands + 1))\n"
    "            [ -n \"$verb\" ] || verb=$word\n"
    "            _holdfast_wraps \"$cmd\" && break\n"
    "        fi\n"
    "    done\n"
    "    if _holdfast_wraps \"$cmd\" && [ \"$operands\" -gt 0 ]; then\n"
    "        if declare -F _command_offset >/dev/null; then\n"
    "            _command_offset \"$i\"\n"
    "        elif [ \"$i\" -ge \"$COMP_CWORD\" ]; then\n"
    "            mapfile -t COMPREPLY < <(compgen -c -- \"$cur\")\n"
    "        else\n"
    "            _holdfast_give @file \"$cur\"\n"
    "        fi\n"
    "        return\n"
    "    fi\n"
    "    case $cur in\n"
    "    -*) _holdfast_give \"$(_holdfast_flags \"$cmd\")\" \"$cur\" ;;\n"
    "    *) _holdfast_operand ;;\n"
    "    esac\n"
    "}\n"
    "complete -F _holdfast holdfast\n";

static void bash_operands(FILE *out, const struct hf_cmd *const *cmds)
{
    (void)fputs("_holdfast_operand() {\n    case $cmd:$operands in\n", out);
    for (const struct hf_cmd *const *c = cmds; *c != NULL; c++) {
        HF_CLEANUP(hf_freep) char *verbs = verbs_of(*c, false);
        if ((*c)->wraps) {
            (void)fprintf(out, "    %s:0) mapfile -t COMPREPLY < <(compgen -c -- \"$cur\") ;;\n",
                          (*c)->name);
        } else if (verbs[0] != '\0') {
            (void)fprintf(out, "    %s:0) _holdfast_give \"%s\" \"$cur\" ;;\n", (*c)->name, verbs);
            HF_CLEANUP(hf_freep) char *folders = verbs_of(*c, true);
            (void)fprintf(out,
                          "    %s:1) case \" %s \" in\n        *\" $verb \"*) _holdfast_give "
                          "@folder \"$cur\" ;;\n        *) _holdfast_give @run \"$cur\" ;;\n"
                          "        esac ;;\n",
                          (*c)->name, folders);
        } else {
            (void)fprintf(out, "    %s:0) _holdfast_give @run \"$cur\" ;;\n", (*c)->name);
        }
    }
    (void)fputs("    help:0) _holdfast_give \"$_holdfast_commands man completion\" \"$cur\" ;;\n"
                "    help:1) case $verb in\n"
                "        man) _holdfast_give \"$_holdfast_commands\" \"$cur\" ;;\n"
                "        completion) _holdfast_give \"bash zsh fish\" \"$cur\" ;;\n"
                "        esac ;;\n"
                "    esac\n}\n\n",
                out);
}

static void bash(FILE *out, const struct hf_cmd *const *cmds)
{
    (void)fputs(bash_head, out);
    for (int id = 0; id < HF_SET_MAX; id++) {
        const struct hf_setting *row = &hf_settings_table[id];
        if (row->type != HF_SET_BOOL) {
            (void)fprintf(out, "    --%s) echo '%s' ;;\n", row->name, value_kind(row));
        }
    }
    (void)fputs("    esac\n}\n\n_holdfast_commands='", out);
    command_words(out, cmds);
    (void)fputs("'\n\n_holdfast_flags() {\n    case $1 in\n", out);
    for (const struct hf_cmd *const *c = cmds; *c != NULL; c++) {
        (void)fprintf(out, "    %s) echo '", (*c)->name);
        flags_of(out, *c);
        (void)fputs("' ;;\n", out);
    }
    (void)fputs("    esac\n}\n\n_holdfast_wraps() {\n    case $1 in\n    ", out);
    const char *bar = "";
    for (const struct hf_cmd *const *c = cmds; *c != NULL; c++) {
        if ((*c)->wraps) {
            (void)fprintf(out, "%s%s", bar, (*c)->name);
            bar = " | ";
        }
    }
    (void)fputs(") return 0 ;;\n    esac\n    return 1\n}\n\n", out);
    bash_operands(out, cmds);
    (void)fputs(bash_tail, out);
}

/* Inside single quotes, for zsh's and fish's descriptions; zsh's own marks are escaped there. */
static void quoted(FILE *out, const char *text, const char *marks)
{
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '\'') {
            (void)fputs("'\\''", out);
        } else {
            if (strchr(marks, *p) != NULL) {
                (void)fputc('\\', out);
            }
            (void)fputc(*p, out);
        }
    }
}

static void zsh_flag(FILE *out, const struct hf_setting *row)
{
    const char *kind = value_kind(row);
    (void)fprintf(out, "            '%s--%s%s[", row->type == HF_SET_PATHS ? "*" : "", row->name,
                  row->type == HF_SET_BOOL ? "" : "=");
    quoted(out, row->help, "[]:\\");
    (void)fputc(']', out);
    if (row->type != HF_SET_BOOL) {
        (void)fprintf(out, ":%s:", row->arg);
        if (strcmp(kind, "@file") == 0) {
            (void)fputs("_files", out);
        } else if (strcmp(kind, "@folder") == 0) {
            (void)fputs("_files -/", out);
        } else if (strcmp(kind, "@run") == 0) {
            (void)fputs("_holdfast_runs", out);
        } else if (kind[0] != '@') {
            (void)fprintf(out, "(%s)", kind);
        }
    }
    (void)fputs("' \\\n", out);
}

static void zsh(FILE *out, const struct hf_cmd *const *cmds)
{
    (void)fputs("#compdef holdfast\n# made by 'holdfast help completion zsh'\n\n"
                "_holdfast_runs() {\n"
                "    local -a runs\n"
                "    runs=(${(f)\"$(holdfast status 2>/dev/null |\n"
                "        sed -n 's/^\\([A-Za-z0-9][A-Za-z0-9._-]*\\)$/\\1/p')\"})\n"
                "    compadd -a runs\n}\n"
                "_holdfast_places() {\n"
                "    _alternative 'runs:run:_holdfast_runs' 'folders:folder:_files -/'\n}\n\n"
                "_holdfast() {\n    local -a commands\n    commands=(\n",
                out);
    for (const struct hf_cmd *const *c = cmds; *c != NULL; c++) {
        (void)fprintf(out, "        '%s:", (*c)->name);
        quoted(out, (*c)->summary, ":\\");
        (void)fputs("'\n", out);
    }
    (void)fputs("        'help:explains a command'\n    )\n"
                "    if (( CURRENT == 2 )); then\n"
                "        _describe command commands\n        return\n    fi\n"
                "    local cmd=$words[2]\n"
                "    shift words\n    (( CURRENT-- ))\n"
                "    case $cmd in\n",
                out);
    for (const struct hf_cmd *const *c = cmds; *c != NULL; c++) {
        HF_CLEANUP(hf_freep) char *verbs = verbs_of(*c, false);
        (void)fprintf(out, "    %s)\n        _arguments %s\\\n", (*c)->name,
                      (*c)->wraps ? "-S " : "");
        for (int id = 0; id < HF_SET_MAX; id++) {
            if ((hf_settings_table[id].commands & (*c)->group) != 0) {
                zsh_flag(out, &hf_settings_table[id]);
            }
        }
        (void)fputs("            '(- *)'{-h,--help}'[short help]' \\\n", out);
        if ((*c)->wraps) {
            (void)fputs("            '(-)1:command:_command_names -e' '*::arguments:_normal' ;;\n",
                        out);
        } else if (verbs[0] != '\0') {
            (void)fprintf(out, "            '1:what:(%s)' '2:run or folder:_holdfast_places' ;;\n",
                          verbs);
        } else {
            (void)fputs("            '1:run:_holdfast_runs' ;;\n", out);
        }
    }
    (void)fputs("    help)\n        _arguments '1:command:(", out);
    command_words(out, cmds);
    (void)fputs(" man completion)' '2:which:(bash zsh fish ", out);
    command_words(out, cmds);
    (void)fputs(")' ;;\n    esac\n}\n\n_holdfast \"$@\"\n", out);
}

static void fish_description(FILE *out, const char *text)
{
    (void)fputs(" -d '", out);
    for (const char *p = text; *p != '\0'; p++) {
        (void)fprintf(out, "%s%c", *p == '\'' || *p == '\\' ? "\\" : "", *p);
    }
    (void)fputs("'\n", out);
}

static void fish_flag(FILE *out, const struct hf_cmd *cmd, const struct hf_setting *row)
{
    const char *kind = value_kind(row);
    (void)fprintf(out, "complete -c holdfast -n '__fish_seen_subcommand_from %s' -l %s", cmd->name,
                  row->name);
    if (row->letter != 0) {
        (void)fprintf(out, " -s %c", row->letter);
    }
    if (strcmp(kind, "@file") == 0) {
        (void)fputs(" -r -F", out);
    } else if (strcmp(kind, "@folder") == 0) {
        (void)fputs(" -x -a '(__fish_complete_directories)'", out);
    } else if (strcmp(kind, "@run") == 0) {
        (void)fputs(" -x -a '(__holdfast_runs)'", out);
    } else if (kind[0] != '@') {
        (void)fprintf(out, " -x -a '%s'", kind);
    } else if (row->type != HF_SET_BOOL) {
        (void)fputs(" -x", out);
    }
    fish_description(out, row->help);
}

static void fish(FILE *out, const struct hf_cmd *const *cmds)
{
    (void)fputs(
        "# fish completion for holdfast, made by 'holdfast help completion fish'\n"
        "function __holdfast_runs\n"
        "    holdfast status 2>/dev/null | string match -r '^[A-Za-z0-9][A-Za-z0-9._-]*$'\n"
        "end\n"
        "complete -c holdfast -n __fish_use_subcommand -f -a help -d 'explains a command'\n",
        out);
    for (const struct hf_cmd *const *c = cmds; *c != NULL; c++) {
        HF_CLEANUP(hf_freep) char *verbs = verbs_of(*c, false);
        (void)fprintf(out, "complete -c holdfast -n __fish_use_subcommand -f -a %s", (*c)->name);
        fish_description(out, (*c)->summary);
        for (int id = 0; id < HF_SET_MAX; id++) {
            if ((hf_settings_table[id].commands & (*c)->group) != 0) {
                fish_flag(out, *c, &hf_settings_table[id]);
            }
        }
        const char *operands = (*c)->wraps ? "(__fish_complete_subcommand)" : "(__holdfast_runs)";
        (void)fprintf(out,
                      "complete -c holdfast -n '__fish_seen_subcommand_from %s' -f -a '%s%s%s'\n",
                      (*c)->name, verbs, verbs[0] != '\0' ? " " : "", operands);
    }
}

bool hf_completion_print(FILE *out, const struct hf_cmd *const *cmds, const char *shell)
{
    if (strcmp(shell, "bash") == 0) {
        bash(out, cmds);
    } else if (strcmp(shell, "zsh") == 0) {
        zsh(out, cmds);
    } else if (strcmp(shell, "fish") == 0) {
        fish(out, cmds);
    } else {
        return false;
    }
    return true;
}
