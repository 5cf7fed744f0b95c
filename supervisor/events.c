/* SPDX-License-Identifier: Apache-2.0
 *
 * Events: one appended line each. A full disk costs lines, never the run.
 */
#include "base/prelude.h"

#include <string.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "base/mem.h"
#include "supervisor/events.h"

void hf_events_open(struct hf_events *e, const char *path)
{
    *e = (struct hf_events){.path = hf_strdup(path)};
}

void hf_events_release(struct hf_events *e)
{
    hf_free(e->path);
    *e = (struct hf_events){0};
}

void hf_event(struct hf_events *e, uint32_t attempt, const char *name, cJSON *fields_taken)
{
    char utc[HF_UTC_STRLEN];
    cJSON *obj = hf_json_obj();
    hf_json_add_str(obj, "ts", hf_utc_format(hf_wall_ms(), utc));
    /* Printed as text: nanoseconds since boot pass 2^53 after 104 days. */
    HF_CLEANUP(hf_freep) char *ns = hf_asprintf("%llu", (unsigned long long)hf_now_ns());
    hf_json_add_str(obj, "ns", ns);
    hf_json_add_int(obj, "attempt", attempt);
    hf_json_add_str(obj, "event", name);
    while (fields_taken != NULL && fields_taken->child != NULL) {
        cJSON *item = cJSON_DetachItemViaPointer(fields_taken, fields_taken->child);
        HF_CLEANUP(hf_freep) char *key = hf_strdup(item->string);
        hf_json_add(obj, key, item);
    }
    hf_json_free(fields_taken);
    if (e->heard != NULL) {
        e->heard(e->user, name, obj);
    }
    char *text = hf_json_print(obj);
    char *line = hf_asprintf("%s\n", text);
    if (e->path == NULL ||
        hf_fs_append(e->path, (struct hf_span){line, strlen(line)}, NULL) != HF_OK) {
        e->dropped++;
    }
    hf_free(line);
    hf_free(text);
    hf_json_free(obj);
}
