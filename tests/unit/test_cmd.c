/* SPDX-License-Identifier: Apache-2.0
 *
 * The command runner over made-up commands: what a command is given, help, version, complaints
 * and their exit statuses, output that cannot be written.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "supervisor/cmd.h"

/* What the made-up command saw. */
static struct {
    int calls;
    int argc;
    char *const *argv;
    char *first;
    char *const *env;
    enum hf_log_level level;
    enum hf_log_format format;
    const struct hf_inherited *inherited;
    uint64_t every_ms;
} saw;

static int record(struct hf_cmd_ctx *ctx)
{
    saw.calls++;
    saw.argc = ctx->argc;
    saw.first = ctx->argv[0];
    saw.env = ctx->env;
    saw.level = ctx->log->min;
    saw.format = ctx->log->format;
    saw.inherited = ctx->inherited;
    saw.every_ms = hf_set_ms(ctx->settings, HF_SET_EVERY);
    (void)fprintf(ctx->out, "ran %s\n", ctx->cmd->name);
    return 42;
}

static const struct hf_cmd wrap_cmd = {.name = "run",
                                       .args = "[options] [--] COMMAND [ARG]...",
                                       .summary = "wrap one job",
                                       .about = "Wraps one job and keeps it.",
                                       .group = HF_FOR_RUN,
                                       .wraps = true,
                                       .usage_status = HF_EXIT_OWN,
                                       .run = record};
static const struct hf_cmd look_cmd = {.name = "status",
                                       .args = "[options]",
                                       .summary = "show runs",
                                       .group = HF_FOR_STATUS,
                                       .usage_status = HF_EXIT_USAGE,
                                       .run = record};
/* Has every setting, so that every row of the help is seen. */
static const struct hf_cmd all_cmd = {
    .name = "all", .args = "", .summary = "all flags", .group = ~0u, .run = record};
static const struct hf_cmd *const cmds[] = {&wrap_cmd, &look_cmd, &all_cmd, NULL};
static char *const env[] = {"HOME=/home/u", NULL};
static struct hf_inherited inherited;

struct said {
    int status;
    char *out, *err;
};

#define SAY(...) say((char *[]){"holdfast", __VA_ARGS__, NULL})

static struct said say(char **argv)
{
    struct said said = {0};
    size_t out_len = 0;
    size_t err_len = 0;
    int argc = 0;
    while (argv[argc] != NULL) {
        argc++;
    }
    struct hf_cmd_world world = {.cmds = cmds,
                                 .env = env,
                                 .out = open_memstream(&said.out, &out_len),
                                 .err_out = open_memstream(&said.err, &err_len),
                                 .err_fd = STDERR_FILENO,
                                 .inherited = &inherited};
    memset(&saw, 0, sizeof saw);
    said.status = hf_cmd_dispatch(&world, argc, argv);
    (void)fclose(world.out);
    (void)fclose(world.err_out);
    return said;
}

static void forget(struct said *said)
{
    free(said->out);
    free(said->err);
}

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("'%s' is not in '%s'", part, text);
    }
}

/* A folder in which no settings file can stand. */
static int in_empty_folder(void **state)
{
    (void)state;
    return chdir("/proc/self") == 0 ? 0 : -1;
}

static void test_command_gets_its_own(void **state)
{
    (void)state;
    char *argv[] = {"holdfast", "run",    "--every", "5m",     "--log-format=json",
                    "--",       "python", "-q",      "--help", NULL};
    struct said said = say(argv);
    assert_int_equal(said.status, 42);
    assert_int_equal(saw.calls, 1);
    assert_int_equal(saw.argc, 3);
    assert_ptr_equal(saw.first, argv[6]);
    assert_ptr_equal(saw.env, env);
    assert_ptr_equal(saw.inherited, &inherited);
    assert_int_equal(saw.every_ms, 300000);
    assert_int_equal(saw.level, HF_LOG_INFO);
    assert_int_equal(saw.format, HF_LOG_JSON);
    assert_string_equal(said.out, "ran run\n");
    assert_string_equal(said.err, "");
    forget(&said);
    said = SAY("status", "-q");
    assert_int_equal(saw.level, HF_LOG_WARN);
    assert_int_equal(saw.argc, 0);
    assert_null(saw.first);
    forget(&said);
    said = SAY("status", "--debug");
    assert_int_equal(saw.level, HF_LOG_DEBUG);
    forget(&said);
}

static void test_help(void **state)
{
    (void)state;
    struct said said = SAY("--help");
    assert_int_equal(said.status, 0);
    assert_contains(said.out, "run ");
    assert_contains(said.out, "show runs");
    forget(&said);
    static char *const ways[][3] = {{"help", "run"}, {"run", "--help"}, {"run", "-h"}};
    for (size_t i = 0; i < HF_COUNT(ways); i++) {
        said = SAY(ways[i][0], ways[i][1]);
        assert_int_equal(said.status, 0);
        assert_int_equal(saw.calls, 0);
        assert_contains(said.out, "usage: holdfast run [options] [--] COMMAND [ARG]...");
        assert_contains(said.out, "Wraps one job and keeps it.");
        assert_contains(said.out, "--every DURATION");
        assert_contains(said.out, "(10m) *");
        assert_contains(said.out, "-q, --quiet");
        assert_contains(said.out, "In the environment --run is HOLDFAST_RUN_NAME.");
        assert_null(strstr(said.out, "--at-step"));
        assert_string_equal(said.err, "");
        forget(&said);
    }
    said = SAY("help", "status");
    assert_contains(said.out, "\nshow runs\n");
    assert_null(strstr(said.out, "--every"));
    forget(&said);
}

static void test_help_fits_a_terminal(void **state)
{
    (void)state;
    struct said said = SAY("help", "all");
    for (char *line = said.out; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        if (len > 100) {
            fail_msg("help line is %zu columns: %.*s", len, (int)len, line);
        }
        line += len + (line[len] == '\n');
    }
    forget(&said);
}

static void test_version(void **state)
{
    (void)state;
    struct said said = SAY("--version");
    assert_int_equal(said.status, 0);
    assert_string_equal(said.out, "holdfast " HF_VERSION "\n");
    forget(&said);
}

static void test_complaints(void **state)
{
    (void)state;
    static const struct {
        char *argv[4];
        int status;
        const char *msg, *hint;
    } rows[] = {
        {{"holdfast"}, 64, "usage: holdfast COMMAND", ""},
        {{"holdfast", "rnu"}, 64, "error: unknown command 'rnu'", "'holdfast run'"},
        {{"holdfast", "frobnicate"}, 64, "unknown command 'frobnicate'", "'holdfast help' lists"},
        {{"holdfast", "--hlep"}, 64, "unknown flag '--hlep'", "'holdfast --help'"},
        {{"holdfast", "--verison"}, 64, "unknown flag '--verison'", "'holdfast --version'"},
        {{"holdfast", "--run", "x"}, 64, "unknown flag '--run'", "'holdfast run'"},
        {{"holdfast", "-v"}, 64, "unknown flag '-v'", "lists the commands"},
        {{"holdfast", "RUN"}, 64, "unknown command 'RUN'", "lists the commands"},
        {{"holdfast", "python", "train.py"},
         64,
         "unknown command 'python'",
         "'holdfast run -- python' wraps"},
        {{"holdfast", "run", "--", ""}, 125, "first word is empty", "unset"},
        {{"holdfast", "run", "--store=s4://b", "x"},
         125,
         "--store: the store 's4://b' is not",
         "file:///folder"},
        {{"holdfast", ""}, 64, "unknown command ''", "lists the commands"},
        {{"holdfast", "help", "statu"}, 64, "unknown command 'statu'", "'holdfast status'"},
        {{"holdfast", "run", "--evry"}, 125, "error: unknown flag '--evry'", "'--every'"},
        {{"holdfast", "status", "--jsn"}, 64, "unknown flag '--jsn'", "'--json'"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        char *argv[5] = {NULL};
        memcpy(argv, rows[i].argv, sizeof rows[i].argv);
        struct said said = say(argv);
        assert_int_equal(said.status, rows[i].status);
        assert_int_equal(saw.calls, 0);
        assert_string_equal(said.out, "");
        assert_contains(said.err, rows[i].msg);
        assert_contains(said.err, rows[i].hint);
        forget(&said);
    }
}

static void test_full_stdout_is_a_failure(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    struct said said = {0};
    size_t err_len = 0;
    struct hf_cmd_world world = {.cmds = cmds,
                                 .env = env,
                                 .out = full,
                                 .err_out = open_memstream(&said.err, &err_len),
                                 .inherited = &inherited};
    char *version[] = {"holdfast", "--version", NULL};
    assert_int_equal(hf_cmd_dispatch(&world, 2, version), HF_EXIT_FAIL);
    (void)fclose(full);
    full = fopen("/dev/full", "w");
    world.out = full;
    char *status[] = {"holdfast", "status", NULL};
    assert_int_equal(hf_cmd_dispatch(&world, 2, status), 42);
    (void)fclose(full);
    (void)fclose(world.err_out);
    assert_contains(said.err, "cannot write to stdout");
    free(said.err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_command_gets_its_own),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_help_fits_a_terminal),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_complaints),
        cmocka_unit_test(test_full_stdout_is_a_failure),
    };
    return cmocka_run_group_tests_name("cmd", tests, in_empty_folder, NULL);
}
