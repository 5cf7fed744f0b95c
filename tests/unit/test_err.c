/* SPDX-License-Identifier: Apache-2.0
 *
 * base/err: what each function leaves in the struct, that texts stay one printable line of
 * bounded length, and the names and errno numbers of all codes.
 */
#include "base/prelude.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/text.h"

static void fail_fills_all(void **state)
{
    (void)state;
    struct hf_err err;
    memset(&err, 'x', sizeof(err));
    int line = __LINE__ + 1;
    assert_int_equal(hf_fail(&err, HF_EINVAL, "no '%s' in %d", "a", 7), HF_EINVAL);
    assert_int_equal(err.code, HF_EINVAL);
    assert_int_equal(err.domain, HF_DOM_NONE);
    assert_int_equal(err.native, 0);
    assert_int_equal(err.retry_after_ms, 0);
    assert_string_equal(err.file, __FILE__);
    assert_int_equal(err.line, line);
    assert_string_equal(err.msg, "no 'a' in 7");
    assert_string_equal(err.hint, "");
}

static void null_drops_the_text(void **state)
{
    (void)state;
    assert_int_equal(hf_fail(NULL, HF_EIO, "%s", "text"), HF_EIO);
    assert_int_equal(hf_fail_errno(NULL, ENOENT, "%s", "text"), HF_ENOTFOUND);
    assert_int_equal(hf_wrap(NULL, HF_EFULL, "%s", "text"), HF_EFULL);
    assert_int_equal(hf_hint(NULL, HF_EFULL, "%s", "text"), HF_EFULL);
}

static void errno_describes(void **state)
{
    (void)state;
    struct hf_err err;
    assert_int_equal(hf_fail_errno(&err, ENOSPC, "write '%s'", "f"), HF_EFULL);
    assert_int_equal(err.code, HF_EFULL);
    assert_int_equal(err.domain, HF_DOM_ERRNO);
    assert_int_equal(err.native, ENOSPC);
    assert_string_equal(err.msg, "write 'f': No space left on device");
    assert_string_equal(err.hint, "");
}

static void wrap_and_hint(void **state)
{
    (void)state;
    struct hf_err err;
    hf_fail(&err, HF_ECORRUPT, "inner");
    int line = err.line;
    assert_int_equal(hf_wrap(&err, HF_ECORRUPT, "part %d", 3), HF_ECORRUPT);
    assert_int_equal(hf_wrap(&err, HF_ECORRUPT, "outer"), HF_ECORRUPT);
    assert_string_equal(err.msg, "outer: part 3: inner");
    assert_int_equal(err.line, line);
    hf_hint(&err, HF_ECORRUPT, "First.");
    hf_hint(&err, HF_ECORRUPT, "Do %s.", "that");
    assert_string_equal(err.hint, "Do that.");
    assert_string_equal(err.msg, "outer: part 3: inner");
    /* A success is passed through and nothing is touched. */
    assert_int_equal(hf_wrap(&err, HF_OK, "no"), HF_OK);
    assert_int_equal(hf_hint(&err, HF_OK, "no"), HF_OK);
    assert_string_equal(err.msg, "outer: part 3: inner");
    assert_string_equal(err.hint, "Do that.");
    /* A new failure forgets the old hint. */
    hf_fail(&err, HF_EIO, "other");
    assert_string_equal(err.hint, "");
}

static void one_printable_line(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"a\nb", "a?b"},     {"a\r\n\tb", "a???b"},          {"\x1b[31mred", "?[31mred"},
        {"del\x7f", "del?"}, {"caf\xc3\xa9", "caf\xc3\xa9"}, {"100%s", "100%s"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_err err;
        hf_fail(&err, HF_EIO, "%s", rows[i].in);
        assert_string_equal(err.msg, rows[i].out);
        hf_hint(&err, HF_EIO, "%s", rows[i].in);
        assert_string_equal(err.hint, rows[i].out);
        hf_fail_errno(&err, EIO, "%s", rows[i].in);
        assert_int_equal(strncmp(err.msg, rows[i].out, strlen(rows[i].out)), 0);
        hf_fail(&err, HF_EIO, "x");
        hf_wrap(&err, HF_EIO, "%s", rows[i].in);
        assert_int_equal(strncmp(err.msg, rows[i].out, strlen(rows[i].out)), 0);
    }
}

static void long_texts_are_cut(void **state)
{
    (void)state;
    char text[2000];
    memset(text, 'm', sizeof(text) - 1);
    memcpy(text + sizeof(text) - 4, "end", 4);
    struct hf_err err;
    for (int how = 0; how < 4; how++) {
        if (how == 0) {
            hf_fail(&err, HF_EIO, "%s", text);
        } else if (how == 1) {
            hf_fail_errno(&err, EIO, "%s", text);
        } else if (how == 2) {
            hf_fail(&err, HF_EIO, "inner");
            hf_wrap(&err, HF_EIO, "%s", text);
        } else {
            hf_fail(&err, HF_EIO, "%s", text);
            hf_wrap(&err, HF_EIO, "outer");
        }
        /* What is tried stands at the start, why not at the end. */
        static const char *const ends[] = {"mmend", ": Input/output error", "mend: inner", "mmend"};
        assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
        assert_non_null(strstr(err.msg, "m...m"));
        assert_string_equal(err.msg + strlen(err.msg) - strlen(ends[how]), ends[how]);
        assert_int_equal(strncmp(err.msg, how == 3 ? "outer: mmm" : "mmmmmm", 6), 0);
    }
    hf_hint(&err, HF_EIO, "%s", text);
    assert_int_equal(strlen(err.hint), sizeof(err.hint) - 1);
    assert_non_null(strstr(err.hint, "m...m"));
    assert_string_equal(err.hint + strlen(err.hint) - 5, "mmend");
    /* No character is torn, wherever the cut falls. */
    for (size_t pad = 0; pad < 6; pad++) {
        size_t end = pad;
        memset(text, 'p', pad);
        for (; end + 3 < sizeof(text); end += 3) {
            memcpy(text + end, "\xe5\xae\x9e", 3);
        }
        text[end] = '\0';
        hf_fail(&err, HF_EIO, "%s", text);
        assert_non_null(strstr(err.msg, "..."));
        for (const char *p = err.msg; *p != '\0';) {
            size_t n = hf_utf8_next(p, strlen(p), NULL);
            assert_true(n > 0);
            p += n;
        }
    }
    memset(text, 'm', sizeof(text));
    /* Exactly as long as there is room: nothing is cut. */
    hf_fail(&err, HF_EIO, "%.*s", (int)sizeof(err.msg) - 1, text);
    assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
    assert_string_equal(err.msg + sizeof(err.msg) - 4, "mmm");
}

static void names(void **state)
{
    (void)state;
    for (int rc = HF_OK; rc <= HF_EINTERNAL; rc++) {
        const char *name = hf_rc_name((enum hf_rc)rc);
        assert_true(strcmp(name, "unknown") != 0);
        for (const char *p = name; *p != '\0'; p++) {
            assert_true((*p >= 'a' && *p <= 'z') || *p == '-');
        }
        for (int other = HF_OK; other < rc; other++) {
            assert_string_not_equal(name, hf_rc_name((enum hf_rc)other));
        }
    }
    assert_string_equal(hf_rc_name((enum hf_rc)(HF_EINTERNAL + 1)), "unknown");
    assert_string_equal(hf_rc_name((enum hf_rc)9999), "unknown");
}

static void errno_numbers(void **state)
{
    (void)state;
    static const struct {
        int num;
        enum hf_rc code;
    } rows[] = {
        {0, HF_OK},
        {EAGAIN, HF_EAGAIN},
        {EINTR, HF_EAGAIN},
        {ENOMEM, HF_EAGAIN},
        {EMFILE, HF_EAGAIN},
        {ETIMEDOUT, HF_ETIMEOUT},
        {ECANCELED, HF_ECANCELED},
        {ENOENT, HF_ENOTFOUND},
        {ESRCH, HF_ENOTFOUND},
        {EEXIST, HF_EEXISTS},
        {EACCES, HF_EDENIED},
        {EPERM, HF_EDENIED},
        {EROFS, HF_EDENIED},
        {EINVAL, HF_EINVAL},
        {ENAMETOOLONG, HF_EINVAL},
        {ENOTDIR, HF_EINVAL},
        {ENOSYS, HF_ENOTSUP},
        {EOPNOTSUPP, HF_ENOTSUP},
        {ENOSPC, HF_EFULL},
        {EDQUOT, HF_EFULL},
        {EIO, HF_EIO},
        {EPIPE, HF_EIO},
        {987654, HF_EIO},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        assert_int_equal(hf_rc_of_errno(rows[i].num), rows[i].code);
    }
}

static enum hf_rc tries(enum hf_rc first, int *reached)
{
    HF_TRY(first);
    *reached = 1;
    return HF_EAGAIN;
}

static void try_returns_on_failure(void **state)
{
    (void)state;
    int reached = 0;
    assert_int_equal(tries(HF_EDENIED, &reached), HF_EDENIED);
    assert_int_equal(reached, 0);
    assert_int_equal(tries(HF_OK, &reached), HF_EAGAIN);
    assert_int_equal(reached, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_fills_all),
        cmocka_unit_test(null_drops_the_text),
        cmocka_unit_test(errno_describes),
        cmocka_unit_test(wrap_and_hint),
        cmocka_unit_test(one_printable_line),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(names),
        cmocka_unit_test(errno_numbers),
        cmocka_unit_test(try_returns_on_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
