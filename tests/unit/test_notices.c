/* SPDX-License-Identifier: Apache-2.0
 *
 * cloud/notices: the deadline that a notice sets, the table of standing notices over sequences of
 * rounds, and the memory that many rounds take. Time is a number here; only the last two tests
 * look at a clock.
 */
#include "base/prelude.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cloud/notices.h"
#include "cloud/watch.h"
#include "support_conform_cloud.h"
#include "support_longpoll.h"
#include "support_loop.h"

#ifdef __SANITIZE_ADDRESS__
size_t __sanitizer_get_current_allocated_bytes(void); /* its header is not always installed */
#endif

#define HOUR_MS INT64_C(3600000)
#define WALL_MS INT64_C(1800000000000)

/* Deadlines: first sight at 1000 s; the service's clock says WALL_MS then. */

static void deadlines(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        int64_t at_ms, date_ms; /* after WALL_MS; INT64_MAX: none */
        int64_t our_clock_ms;   /* how far ahead of the service's it is */
        uint32_t own_ms, window_ms;
        int64_t expect_ms; /* after first sight */
    } rows[] = {
        {"as told", 100000, 0, 0, 0, 120000, 100000},
        {"as told, our clock 1 h ahead", 100000, 0, HOUR_MS, 0, 120000, 100000},
        {"as told, our clock 1 h behind", 100000, 0, -HOUR_MS, 0, 120000, 100000},
        {"capped by the window", 300000, 0, 0, 0, 120000, 120000},
        {"a year ahead", INT64_C(31536000000), 0, 0, 0, 120000, 120000},
        {"exactly the window", 120000, 0, 0, 0, 120000, 120000},
        {"past", -1, 0, 0, 0, 120000, 0},
        {"long past", -24 * HOUR_MS, 0, 0, 0, 120000, 0},
        {"now", 0, 0, 0, 0, 120000, 0},
        {"one millisecond left", 1, 0, 0, 0, 120000, 1},
        {"no time", INT64_MAX, 0, 0, 0, 30000, 30000},
        {"no time, no date", INT64_MAX, INT64_MAX, HOUR_MS, 0, 30000, 30000},
        {"no date, our clock is right", 100000, INT64_MAX, 0, 0, 120000, 100000},
        {"no date, our clock 1 h behind", 100000, INT64_MAX, -HOUR_MS, 0, 120000, 120000},
        {"no date, our clock 1 h ahead", 100000, INT64_MAX, HOUR_MS, 0, 120000, 0},
        {"own window, shorter", 100000, 0, 0, 1, 120000, 1},
        {"own window, longer", 500000, 0, 0, 600000, 30000, 500000},
        {"own window, no time", INT64_MAX, INT64_MAX, 0, 900000, 30000, 900000},
        {"no window at all", 100000, 0, 0, 0, 0, 0},
        {"longest window", INT64_MAX, 0, 0, 0, UINT32_MAX, UINT32_MAX},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_notice n = {.kind = HF_NOTICE_RECLAIM, .window_ms = rows[i].own_ms};
        n.at_wall_ms = rows[i].at_ms == INT64_MAX ? 0 : WALL_MS + rows[i].at_ms;
        n.date_wall_ms = rows[i].date_ms == INT64_MAX ? 0 : WALL_MS + rows[i].date_ms;
        uint64_t first_ns = 1000 * HF_SEC;
        uint64_t got_ns =
            hf_notice_deadline(&n, first_ns, WALL_MS + rows[i].our_clock_ms, rows[i].window_ms);
        if (got_ns != first_ns + (uint64_t)rows[i].expect_ms * HF_MS) {
            fail_msg("%s: %lld ms", rows[i].what, (long long)(got_ns - first_ns) / 1000000);
        }
    }
}

/* Sequences. A round is a list of "id@seconds" (the time after WALL_MS, "?": none), and what it
 * changes: "+id" told, "-id" withdrawn. Window 120 s, rearm 300 s; the Date is right. */
struct round {
    int at_s; /* of this round */
    const char *list, *changes;
};

static void read_list(const char *text, int at_s, struct hf_notice_list *ret)
{
    ret->len = 0;
    while (*text != '\0') {
        struct hf_notice *n = &ret->items[ret->len++];
        memset(n, 0, sizeof(*n));
        n->kind = HF_NOTICE_RECLAIM;
        n->id[0] = *text++;
        n->date_wall_ms = WALL_MS + at_s * 1000;
        assert_int_equal(*text++, '@');
        char *end;
        long s = strtol(text, &end, 10);
        n->at_wall_ms = *text == '?' ? 0 : WALL_MS + s * 1000;
        text = *text == '?' ? text + 1 : end;
        text += *text == ' ';
    }
}

static void run_rounds(const char *what, const struct round *r, size_t n)
{
    struct hf_notices s = {.window_ms = 120000, .rearm_ms = 300000};
    for (size_t i = 0; i < n; i++) {
        struct hf_notice_list list;
        struct hf_notices_change changes[HF_NOTICES_CHANGES_MAX];
        char got[128] = "";
        read_list(r[i].list, r[i].at_s, &list);
        size_t k = hf_notices_update(&s, &list, (uint64_t)(1000 + r[i].at_s) * HF_SEC,
                                     WALL_MS + r[i].at_s * 1000, changes);
        for (size_t j = 0; j < k; j++) {
            size_t len = strlen(got);
            snprintf(got + len, sizeof(got) - len, "%s%c%s", len > 0 ? " " : "",
                     changes[j].what == HF_NOTICES_TOLD ? '+' : '-', changes[j].n.id);
        }
        if (strcmp(got, r[i].changes) != 0) {
            fail_msg("%s, round %zu: '%s', not '%s'", what, i, got, r[i].changes);
        }
        assert_true(s.len <= HF_NOTICES_MAX);
    }
}

static void sequences(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        struct round r[8];
    } rows[] = {
        {"told once", {{0, "", ""}, {1, "a@120", "+a"}, {2, "a@120", ""}, {99, "a@120", ""}}},
        {"gone", {{0, "a@120", "+a"}, {1, "", "-a"}, {2, "", ""}}},
        {"gone and back", {{0, "a@120", "+a"}, {1, "", "-a"}, {2, "a@120", "+a"}, {3, "", "-a"}}},
        {"changed time", {{0, "a@120", "+a"}, {1, "a@60", "+a"}, {2, "a@60", ""}, {3, "", "-a"}}},
        {"replaced: the new one first",
         {{0, "a@120", "+a"}, {1, "b@90", "+b -a"}, {2, "b@90", ""}}},
        {"two", {{0, "a@120 b@50", "+a +b"}, {1, "b@50", "-a"}, {2, "b@50 a@120", "+a"}}},
        {"never carried out",
         {{0, "a@10", "+a"},
          {309, "a@10", ""},
          {310, "a@10", "-a"},
          {311, "a@10", ""},
          {999, "a@10", ""},
          {1000, "a@1100", "+a"}}},
        {"never carried out, then gone", {{0, "a@10", "+a"}, {310, "a@10", "-a"}, {311, "", ""}}},
        {"past at first sight", {{0, "a@-10", "+a"}, {289, "a@-10", ""}, {290, "a@-10", "-a"}}},
        {"long past at first sight", {{0, "a@-300", ""}, {1, "a@-300", ""}, {2, "", ""}}},
        {"long past, then real", {{0, "a@-300", ""}, {1, "a@60", "+a"}, {2, "", "-a"}}},
        {"moved into the past", {{0, "a@60", "+a"}, {1, "a@-400", "-a"}, {2, "a@-400", ""}}},
        {"no time", {{0, "a@?", "+a"}, {1, "a@?", ""}, {419, "a@?", ""}, {420, "a@?", "-a"}}},
        {"loses its time",
         {{0, "a@60", "+a"}, {1, "a@?", ""}, {359, "a@?", ""}, {360, "a@?", "-a"}}},
        {"gets a time", {{0, "a@?", "+a"}, {1, "a@60", "+a"}, {2, "a@60", ""}}},
        {"twice in one list", {{0, "a@60 a@60", "+a"}, {1, "a@60", ""}, {2, "", "-a"}}},
        {"full",
         {{0, "a@9 b@9 c@9 d@9 e@9 f@9 g@9 h@9", "+a +b +c +d +e +f +g +h"},
          {1, "i@9 j@9 k@9 l@9 m@9 n@9 o@9 p@9", "+i +j +k +l +m +n +o +p -a -b -c -d -e -f -g -h"},
          {2, "", "-i -j -k -l -m -n -o -p"}}},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        size_t n = 0;
        while (n < HF_COUNT(rows[i].r) && rows[i].r[n].list != NULL) {
            n++;
        }
        run_rounds(rows[i].what, rows[i].r, n);
    }
}

static void kinds_are_kept_apart(void **state)
{
    (void)state;
    struct hf_notices s = {.window_ms = 120000, .rearm_ms = 300000};
    struct hf_notices_change changes[HF_NOTICES_CHANGES_MAX];
    struct hf_notice_list list = {.len = 2};
    list.items[0] = (struct hf_notice){.kind = HF_NOTICE_MAINTENANCE, .id = "x"};
    list.items[1] = (struct hf_notice){.kind = HF_NOTICE_RECLAIM, .id = "x"};
    assert_int_equal(hf_notices_update(&s, &list, HF_SEC, WALL_MS, changes), 2);
    list.len = 1;
    assert_int_equal(hf_notices_update(&s, &list, 2 * HF_SEC, WALL_MS, changes), 1);
    assert_int_equal(changes[0].what, HF_NOTICES_WITHDRAWN);
    assert_int_equal(changes[0].n.kind, HF_NOTICE_RECLAIM);
}

/* Without a Date our own clock stands in, and it may be wrong: the window bounds how long a notice
 * holds training up. Absurd numbers must not overflow either. */
static void wild_times(void **state)
{
    (void)state;
    static const int64_t times[] = {1, -1, INT64_MIN / 2, INT64_MAX / 2, WALL_MS + HOUR_MS};
    for (size_t i = 0; i < HF_COUNT(times); i++) {
        struct hf_notices s = {.window_ms = 120000, .rearm_ms = 300000};
        struct hf_notices_change changes[HF_NOTICES_CHANGES_MAX];
        struct hf_notice_list list = {.len = 1};
        list.items[0] =
            (struct hf_notice){.kind = HF_NOTICE_RECLAIM, .id = "x", .at_wall_ms = times[i]};
        bool ahead = times[i] > WALL_MS;
        uint64_t now_ns = 10 * HF_SEC;
        assert_int_equal(hf_notices_update(&s, &list, now_ns, WALL_MS, changes), ahead);
        now_ns += 419 * HF_SEC;
        assert_int_equal(hf_notices_update(&s, &list, now_ns, WALL_MS, changes), 0);
        now_ns += HF_SEC;
        assert_int_equal(hf_notices_update(&s, &list, now_ns, WALL_MS, changes), ahead);
    }
}

/* Memory */

/* Bytes that are allocated now, as the allocator itself counts them. */
static size_t live_bytes(void)
{
#ifdef __SANITIZE_ADDRESS__
    return __sanitizer_get_current_allocated_bytes();
#else
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
#endif
}

static size_t resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    assert_non_null(f);
    unsigned long total = 0, resident = 0;
    assert_int_equal(fscanf(f, "%lu %lu", &total, &resident), 2);
    fclose(f);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* All that a service can do: calm, notices that change, refused tokens, errors. */
static void serve_anything(void *mood, const struct hf_httpd_request *rq,
                           struct hf_httpd_reply *ret)
{
    (void)mood;
    static unsigned served;
    unsigned n = served++;
    if (strcmp(rq->method, "PUT") == 0) {
        ret->status = n % 31 == 0 ? 404 : 200;
        snprintf(ret->body, sizeof(ret->body), "token-%u", n);
        snprintf(ret->headers, sizeof(ret->headers),
                 "X-aws-ec2-metadata-token-ttl-seconds: 21600\r\nDate: whatever\r\n");
    } else if (n % 7 == 0) {
        ret->status = 401;
    } else if (n % 11 == 0) {
        ret->status = 503;
    } else if (n % 3 == 0) {
        ret->status = 404;
        snprintf(ret->body, sizeof(ret->body), "<html>404</html>");
    } else {
        snprintf(ret->body, sizeof(ret->body),
                 "{\"action\":\"terminate\",\"time\":\"2027-01-15T08:%02u:00Z\"}", n / 100 % 60);
    }
}

/* Provider and table over as many fake rounds as 2 s allow (a million of them is two weeks of
 * polling). What lives after the first tenth is what lives at the end. */
static void many_rounds_take_no_memory(void **state)
{
    (void)state;
    static const struct hf_conform_subject subject = {&hf_cloud_aws, serve_anything, false, false};
    struct hf_notices s = {.window_ms = 120000, .rearm_ms = 300000};
    struct hf_notices_change changes[HF_NOTICES_CHANGES_MAX];
    struct hf_notice_list list;
    struct hf_err err;
    void *self = hf_cloud_aws.create("http://127.0.0.1:7777");
    uint64_t begin_ns = hf_now_ns(), rounds = 0, told = 0, faults = 0;
    size_t live = 0, resident = 0;
    while (hf_now_ns() - begin_ns < 2 * HF_SEC && rounds < 1000000) {
        if (hf_conform_round(&subject, self, HF_MOOD_CALM, NULL, &list, &err) == HF_POLL_DONE) {
            told += hf_notices_update(&s, &list, hf_now_ns(), WALL_MS, changes);
        } else {
            faults++;
        }
        if (live == 0 && hf_now_ns() - begin_ns > HF_SEC / 5) {
            live = live_bytes();
            resident = resident_bytes();
        }
        rounds++;
    }
    size_t live_after = live_bytes(), resident_after = resident_bytes();
    print_message("%llu rounds, %llu changes, %llu faults: live bytes %zu -> %zu, resident KiB "
                  "%zu -> %zu\n",
                  (unsigned long long)rounds, (unsigned long long)told, (unsigned long long)faults,
                  live, live_after, resident / 1024, resident_after / 1024);
    assert_true(rounds > 5000 && told > 100 && faults > 100);
    /* One reply's worth may happen to be there at one of the two moments. */
    assert_true(live_after <= live + 1024);
#ifndef __SANITIZE_ADDRESS__
    assert_true(resident_after <= resident + 64 * 1024);
#endif
    hf_cloud_aws.destroy(self);
}

/* The same with the real client and sockets, one request after the other for a second. */
#define WARM_UP 200

struct stream {
    struct hf_http *http;
    struct hf_http_req req;
    uint64_t requests;
    bool stop, over;
    size_t live, resident; /* after the warm-up */
    size_t live_after, resident_after;
};

static void serve_404(void *user, const struct hf_httpd_request *rq, struct hf_httpd_reply *ret)
{
    (void)user;
    (void)rq;
    ret->status = 404;
    snprintf(ret->body, sizeof(ret->body), "<html>404</html>");
}

static void next_request(void *user, const struct hf_err *err)
{
    struct stream *s = user;
    assert_null(err);
    /* Measured at the same point of a transfer's life each time. */
    if (s->requests++ == WARM_UP) {
        s->live = live_bytes();
        s->resident = resident_bytes();
    }
    if (s->stop && s->requests > WARM_UP) {
        s->live_after = live_bytes();
        s->resident_after = resident_bytes();
        s->over = true;
        return;
    }
    assert_int_equal(hf_http_start(s->http, NULL, &s->req, next_request, s, NULL, NULL), HF_OK);
}

static bool is_over(void *user)
{
    return ((struct stream *)user)->over;
}

static bool never(void *user)
{
    (void)user;
    return false;
}

static void many_requests_take_no_memory(void **state)
{
    (void)state;
    struct hf_loop loop;
    assert_int_equal(hf_loop_init(&loop, NULL), HF_OK);
    struct stream s = {.http = hf_http_new(&loop)};
    struct hf_httpd *server = hf_httpd_start(serve_404, NULL);
    hf_http_req_init(&s.req, "GET", 1000);
    hf_http_req_url(&s.req, "http://127.0.0.1:%u/", (unsigned)hf_httpd_port(server));
    s.req.metadata = true;
    assert_int_equal(hf_http_start(s.http, NULL, &s.req, next_request, &s, NULL, NULL), HF_OK);
    hf_test_run_until(&loop, never, NULL, 1300);
    s.stop = true;
    assert_true(hf_test_run_until(&loop, is_over, &s, 5000));
    print_message("%llu requests: live bytes %zu -> %zu, resident KiB %zu -> %zu\n",
                  (unsigned long long)s.requests, s.live, s.live_after, s.resident / 1024,
                  s.resident_after / 1024);
    assert_true(s.requests > 2 * WARM_UP);
    assert_true(s.live_after <= s.live + 4096);
#ifndef __SANITIZE_ADDRESS__
    assert_true(s.resident_after <= s.resident + 128 * 1024);
#endif
    hf_http_req_release(&s.req);
    hf_http_free(s.http);
    hf_test_loop_close(&loop);
    hf_httpd_stop(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deadlines),
        cmocka_unit_test(sequences),
        cmocka_unit_test(kinds_are_kept_apart),
        cmocka_unit_test(wild_times),
        cmocka_unit_test(many_rounds_take_no_memory),
        cmocka_unit_test(many_requests_take_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
