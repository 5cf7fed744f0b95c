/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry point, and nothing else.
 */
#include "base/prelude.h"

#include "supervisor/cmd.h"

int main(int argc, char **argv)
{
    return hf_main(argc, argv);
}
