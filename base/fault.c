/* SPDX-License-Identifier: Apache-2.0
 *
 * Fault points of test builds; empty in a product build. The counters are the one piece of global
 * state of the project, and exist only where HF_TEST_FAULTS is defined.
 */
#include "base/prelude.h"

#include "base/fault.h"

#ifdef HF_TEST_FAULTS

#    include <pthread.h>
#    include <stdio.h>
#    include <stdlib.h>
#    include <string.h>
#    include <unistd.h>

struct point {
    char domain[16];
    uint64_t nth;
    uint64_t calls;
    bool and_later;
    bool fired;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct point points[8];
static bool env_read;
static bool by_env;

static struct point *find(const char *domain)
{
    size_t len = strlen(domain);
    for (size_t i = 0; i < HF_COUNT(points); i++) {
        if (points[i].domain[0] == '\0' && len < sizeof(points[i].domain)) {
            memcpy(points[i].domain, domain, len + 1);
        }
        if (strcmp(points[i].domain, domain) == 0) {
            return &points[i];
        }
    }
    abort();
}

static void arm(const char *domain, uint64_t nth, bool and_later)
{
    struct point *p = find(domain);
    p->nth = nth;
    p->and_later = and_later;
    p->calls = 0;
    p->fired = false;
}

/* "file:17" or "file:17+" */
static void read_env(void)
{
    env_read = true;
    const char *text = getenv("HOLDFAST_FAULT");
    const char *colon = text != NULL ? strchr(text, ':') : NULL;
    if (colon == NULL || colon - text >= 16) {
        return;
    }
    char domain[16] = "";
    memcpy(domain, text, (size_t)(colon - text));
    char *end = NULL;
    uint64_t nth = strtoull(colon + 1, &end, 10);
    arm(domain, nth, *end == '+');
    by_env = nth > 0;
}

bool hf_fault(const char *domain)
{
    pthread_mutex_lock(&lock);
    if (!env_read) {
        read_env();
    }
    struct point *p = find(domain);
    p->calls++;
    bool hit = p->nth > 0 && (p->calls == p->nth || (p->and_later && p->calls > p->nth));
    p->fired = p->fired || hit;
    uint64_t call = p->calls;
    bool say = hit && by_env;
    pthread_mutex_unlock(&lock);
    if (say) {
        /* For the script that counts upwards until this line no longer comes. */
        char line[80];
        int n = snprintf(line, sizeof(line), "holdfast-fault: call %llu of '%s' failed\n",
                         (unsigned long long)call, domain);
        ssize_t ignored = write(STDERR_FILENO, line, n > 0 ? (size_t)n : 0);
        (void)ignored;
    }
    return hit;
}

void hf_fault_arm(const char *domain, uint64_t nth, bool and_later)
{
    pthread_mutex_lock(&lock);
    env_read = true;
    arm(domain, nth, and_later);
    pthread_mutex_unlock(&lock);
}

uint64_t hf_fault_count(const char *domain)
{
    pthread_mutex_lock(&lock);
    uint64_t n = find(domain)->calls;
    pthread_mutex_unlock(&lock);
    return n;
}

bool hf_fault_fired(const char *domain)
{
    pthread_mutex_lock(&lock);
    bool fired = find(domain)->fired;
    pthread_mutex_unlock(&lock);
    return fired;
}

#endif
