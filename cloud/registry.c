/* SPDX-License-Identifier: Apache-2.0
 *
 * The providers, and what a machine's firmware strings say about them. Reads a few small files of
 * sysfs, no network. Any thread. A match is a strong hint and no proof: the watcher shows whether
 * the service answers.
 */
#include "base/prelude.h"

#include <stdio.h>
#include <string.h>

#include "base/fsx.h"
#include "cloud/cloud.h"

const struct hf_cloud_ops *const hf_clouds[] = {&hf_cloud_aws, NULL};

const struct hf_cloud_ops *hf_cloud_by_name(const char *name)
{
    for (size_t i = 0; hf_clouds[i] != NULL; i++) {
        if (strcmp(hf_clouds[i]->name, name) == 0) {
            return hf_clouds[i];
        }
    }
    return NULL;
}

/* All of a row's files must match; the second may be absent. Only files that any user can read. */
struct dmi_sign {
    const struct hf_cloud_ops *ops;
    const char *file, *value;        /* equals */
    const char *also_file, *also_in; /* contains */
};

static const struct dmi_sign dmi_signs[] = {
    {&hf_cloud_aws, "sys_vendor", "Amazon EC2", NULL, NULL},
    {&hf_cloud_aws, "sys_vendor", "Xen", "bios_version", "amazon"},
};

/* "" when it cannot be read. */
static void read_line(const char *sysfs, const char *file, char *ret, size_t size)
{
    struct hf_buf b;
    hf_buf_init(&b, 256);
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", sysfs, file);
    ret[0] = '\0';
    if (hf_fs_read(path, &b, NULL) == HF_OK) {
        snprintf(ret, size, "%s", hf_buf_str(&b));
        size_t len = strlen(ret);
        while (len > 0 && strchr(" \t\r\n", ret[len - 1]) != NULL) {
            ret[--len] = '\0';
        }
    }
    hf_buf_release(&b);
}

const struct hf_cloud_ops *hf_cloud_detect_dmi(const char *sysfs)
{
    for (size_t i = 0; i < HF_COUNT(dmi_signs); i++) {
        const struct dmi_sign *s = &dmi_signs[i];
        char line[256];
        read_line(sysfs, s->file, line, sizeof(line));
        if (strcmp(line, s->value) != 0) {
            continue;
        }
        if (s->also_file != NULL) {
            read_line(sysfs, s->also_file, line, sizeof(line));
        }
        if (s->also_file == NULL || strstr(line, s->also_in) != NULL) {
            return s->ops;
        }
    }
    return NULL;
}
