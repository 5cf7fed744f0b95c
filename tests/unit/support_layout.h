/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of checkpoint/layout and checkpoint/container: files as frameworks write them, in
 * small, and folders made of them. What is made here is simulated; tests/data/containers holds what
 * the libraries themselves wrote.
 */
#ifndef HF_TESTS_SUPPORT_LAYOUT_H
#define HF_TESTS_SUPPORT_LAYOUT_H

#include "base/prelude.h"

#include <time.h>

#include "base/buf.h"
#include "checkpoint/layout.h"

enum make {
    MAKE_ZIP,
    MAKE_ZIP64, /* as torch writes: both kinds of end record */
    MAKE_TENSORS,
    MAKE_HDF5,
    MAKE_PICKLE,
    MAKE_TABLE,
    MAKE_MANIFEST,
    MAKE_ZIPS, /* some in a row: a ".distcp" */
    MAKE_RAW,
    MAKE_TEXT /* as given */
};

/* One file below a folder. */
struct made {
    const char *name;
    enum make make;
    const char *text; /* MAKE_TEXT: all of it; MAKE_PICKLE: what stands in it, or NULL */
};

/* The bytes of such a file, added to b. */
void make_bytes(enum make make, const char *text, struct hf_buf *b);
/* Writes it below `folder`; its parents are made. */
void make_file(const char *folder, const struct made *m);
/* All of them, up to one without a name. */
void make_files(const char *folder, const struct made *files);

/* A file of tests/data/containers; the text is to be released. */
void read_sample(const char *name, struct hf_buf *b);

/* What hf_layout_judge says of folder/name; not being there is FOREIGN with layout "gone". */
struct hf_layout_look look_at_path(const char *folder, const char *name, uint32_t world);
/* A scan that must work. */
struct hf_layout_looks scan_folder(const char *folder, uint32_t world);
/* The look of that entry; NULL: none. */
const struct hf_layout_look *find_look(const struct hf_layout_looks *looks, const char *name);
bool has_root(const struct hf_layout_look *l, const char *name); /* by its last part */
/* Fails unless that entry is told, in that state. */
void expect_state(const struct hf_layout_looks *looks, const char *name,
                  enum hf_layout_state state);

/* Below `folder`; parents are made. */
void put_in(const char *folder, const char *name, enum make make, const char *text);
void make_dir(const char *folder, const char *name);
void link_in(const char *folder, const char *target, const char *name);
void put_mtime(const char *folder, const char *name, time_t at);
void remove_tree(char *folder_taken);

#endif
