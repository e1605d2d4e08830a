/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/protocol/own_build.h"

#include <stdio.h>

#include "rendezvous/common/base/version.h"

/* CRUN_COMMIT is " (6328e48b)" and CRUN_BUILD " (6328e48b, 2026-11-23)", or both are
 * "": make gives them to this file alone, so that a commit compiles no other. */
const char own_build_crun[] = "crun " CRUN_VERSION CRUN_COMMIT;
const char own_build_crund[] = "crund " CRUN_VERSION CRUN_COMMIT;

int own_build_print(const char *program, const char *what)
{
    return printf("%s " CRUN_VERSION "%s, %s\n", program, CRUN_BUILD, what);
}
