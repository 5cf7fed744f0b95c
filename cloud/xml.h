/* SPDX-License-Identifier: Apache-2.0
 *
 * XML replies by expat, within limits: no DTD, so no entities but XML's own five; at most 16
 * elements deep; at most 16 KiB of text in an element. Any thread.
 */
#ifndef HF_CLOUD_XML_H
#define HF_CLOUD_XML_H

#include "base/err.h"

/* At the end of each element. path: its name and those above it, "Error/Code", without namespaces;
 * text: what stood directly in it, blanks kept. Both borrowed. */
typedef void hf_xml_fn(void *user, const char *path, const char *text);

/* HF_ECORRUPT: not well-formed, cut off, or beyond a limit; what was called back before that must
 * then not be used. */
enum hf_rc hf_xml_read(struct hf_span text, hf_xml_fn *each, void *user,
                       struct hf_err *err) HF_MUST_USE;

#endif
