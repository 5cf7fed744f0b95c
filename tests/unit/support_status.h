/* SPDX-License-Identifier: Apache-2.0
 *
 * What every status must be like, here or from a store: exactly the fields that docs/status.md
 * lists, each once, and nothing that a terminal would take for a command.
 */
#ifndef HF_TESTS_SUPPORT_STATUS_H
#define HF_TESTS_SUPPORT_STATUS_H

#include "base/prelude.h"

#include <cjson/cJSON.h>

/* `what` goes into the failure's message; and_more: fields that nobody knows may be there too. */
void must_be_documented(const cJSON *run, bool and_more, const char *what);
void must_be_plain(const char *page, const char *what);
/* The one run of {"format":1,"runs":[...]}. */
const cJSON *only_run(const cJSON *all);

#endif
