/* SPDX-License-Identifier: Apache-2.0
 *
 * Small allocation never fails: it ends the process with a line on stderr. A crash of the
 * supervisor must be harmless anyway (the keeper and the command live on). Big buffers (over 64
 * KiB) are asked for with hf_big_new, which may fail. Any thread.
 */
#ifndef HF_BASE_MEM_H
#define HF_BASE_MEM_H

#include "base/prelude.h"

/* Says so on stderr and aborts. */
HF_NORETURN void hf_out_of_memory(void);

/* Zeroed memory for n objects of `size` bytes; freed with hf_free. Aborts when out of memory. */
void *hf_calloc(size_t n, size_t size);
/* Grows or shrinks; new bytes are undefined. Aborts when out of memory. */
void *hf_realloc(void *ptr, size_t size);
char *hf_strdup(const char *s);              /* NULL gives NULL */
char *hf_strndup(const char *s, size_t len); /* always terminated */
char *hf_asprintf(const char *fmt, ...) HF_PRINTF(1, 2);
void hf_free(void *ptr); /* NULL is fine; errno is kept */

#define HF_NEW(type) ((type *)hf_calloc(1, sizeof(type)))

/* Page-aligned buffer straight from the kernel, or NULL. Released with hf_big_free, which gives the
 * memory back at once. */
void *hf_big_new(size_t len);
void hf_big_free(void *ptr, size_t len);

/* Scope cleanup: HF_CLEANUP(hf_freep) char *s = ...; HF_CLEANUP(hf_closep) int fd = -1; */
void hf_freep(void *pointer_to_pointer);
void hf_closep(int *fd); /* closes if >= 0; errno is kept */

/* A growing list of owned strings. Zero-initialised is empty. */
struct hf_strv {
    char **items; /* NULL-terminated once something was added */
    size_t len;
};
void hf_strv_add(struct hf_strv *v, const char *s); /* copies */
void hf_strv_take(struct hf_strv *v, char *s);      /* takes ownership */
void hf_strv_clear(struct hf_strv *v);              /* frees all; v is empty and usable */
bool hf_strv_has(const struct hf_strv *v, const char *s);

#endif
