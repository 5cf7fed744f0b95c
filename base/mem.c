/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory. Small allocation ends the process when there is none; big buffers come straight from the
 * kernel and go back at once, so that handling a notice leaves no fat heap behind.
 */
#include "base/prelude.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

void hf_out_of_memory(void)
{
    static const char text[] = "holdfast: out of memory\n";
    ssize_t ignored = write(STDERR_FILENO, text, sizeof(text) - 1);
    (void)ignored;
    abort();
}

void *hf_calloc(size_t n, size_t size)
{
    void *p = calloc(n > 0 ? n : 1, size > 0 ? size : 1);
    if (p == NULL) {
        hf_out_of_memory();
    }
    return p;
}

void *hf_realloc(void *ptr, size_t size)
{
    void *p = realloc(ptr, size > 0 ? size : 1);
    if (p == NULL) {
        hf_out_of_memory();
    }
    return p;
}

char *hf_strdup(const char *s)
{
    return s == NULL ? NULL : hf_strndup(s, strlen(s));
}

char *hf_strndup(const char *s, size_t len)
{
    char *p = hf_calloc(len + 1, 1);
    memcpy(p, s, len);
    return p;
}

char *hf_asprintf(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *out = NULL;
    int n = vasprintf(&out, fmt, args);
    va_end(args);
    if (n < 0) {
        hf_out_of_memory();
    }
    return out;
}

void hf_free(void *ptr)
{
    int saved = errno;
    free(ptr);
    errno = saved;
}

void *hf_big_new(size_t len)
{
    void *p =
        mmap(NULL, len > 0 ? len : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void hf_big_free(void *ptr, size_t len)
{
    if (ptr != NULL) {
        munmap(ptr, len > 0 ? len : 1);
    }
}

void hf_freep(void *pointer_to_pointer)
{
    void *p = NULL;
    memcpy(&p, pointer_to_pointer, sizeof(p));
    hf_free(p);
}

void hf_closep(int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        close(*fd);
        errno = saved;
        *fd = -1;
    }
}

void hf_strv_take(struct hf_strv *v, char *s)
{
    if (s == NULL) {
        return;
    }
    /* Room is doubled at powers of two: len + 1 (the NULL) slots are always there. */
    if ((v->len & (v->len + 1)) == 0) {
        v->items = hf_realloc(v->items, (2 * (v->len + 1) + 1) * sizeof(char *));
    }
    v->items[v->len++] = s;
    v->items[v->len] = NULL;
}

void hf_strv_add(struct hf_strv *v, const char *s)
{
    hf_strv_take(v, hf_strdup(s));
}

void hf_strv_clear(struct hf_strv *v)
{
    for (size_t i = 0; i < v->len; i++) {
        hf_free(v->items[i]);
    }
    hf_free(v->items);
    v->items = NULL;
    v->len = 0;
}

bool hf_strv_has(const struct hf_strv *v, const char *s)
{
    for (size_t i = 0; i < v->len; i++) {
        if (strcmp(v->items[i], s) == 0) {
            return true;
        }
    }
    return false;
}
