/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: a line of the hook protocol, read by the server's parser and by the C client's
 * reader. What the server accepts is in bounds; what the client reads as a string prints and
 * reads back equal. One thread.
 */
#include "base/prelude.h"

#include <stdlib.h>
#include <string.h>

#include "hooks/c/agree_step.h"
#include "hooks/c/json_line.h"
#include "hooks/proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void read_as_server(const uint8_t *data, size_t size)
{
    struct hf_hook_msg m;
    struct hf_err err = {0};
    enum hf_rc rc = hf_hook_parse((struct hf_span){data, size}, &m, &err);
    if (rc != HF_OK) {
        require(err.code == rc && err.msg[0] != '\0' && !strchr(err.msg, '\n'));
        return;
    }
    if (m.kind == HF_HOOK_HELLO) {
        require(m.rank < m.world && m.pid > 0 && m.last >= -1 && m.protocol > 0);
    }
    if (m.kind == HF_HOOK_SAVED) {
        require(m.id <= 0xffff && m.step >= 0 && m.step <= HFW_STEP_MAX);
        require(m.paths.len <= HF_HOOK_PATHS_MAX);
        for (size_t i = 0; i < m.paths.len; i++) {
            require(m.paths.items[i][0] == '/');
        }
    }
    char *reply = hf_hook_print_unsupported(m.name);
    require(strchr(reply, '\n') == reply + strlen(reply) - 1);
    hf_free(reply);
    hf_hook_msg_release(&m);
}

static void read_as_client(const char *line, size_t size)
{
    static const char *const keys[] = {"msg", "slot", "life", "save_dir", "resume", "why"};
    for (size_t i = 0; i < HF_COUNT(keys); i++) {
        int64_t n;
        const char *value = hfj_find(line, keys[i]);
        (void)hfj_get_int(line, keys[i], &n);
        (void)hfj_get_int(value, "step", &n);
        free(hfj_read_bytes(hfj_find(value, "path")));
        char *text = hfj_read_bytes(value);
        if (!text) {
            continue;
        }
        struct hfj_out o = {.cap = 8 * size + 32};
        o.data = malloc(o.cap);
        require(o.data != NULL);
        hfj_bytes(&o, text);
        require(!o.full);
        char *again = hfj_read_bytes(o.data);
        require(again && strcmp(again, text) == 0);
        free(again);
        free(o.data);
        free(text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_as_server(data, size);
    char *line = malloc(size + 1);
    require(line != NULL);
    memcpy(line, data, size);
    line[size] = '\0';
    read_as_client(line, size);
    free(line);
    return 0;
}
