/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/base/err.h"
#include "worker-lib/crun/worker.h"

/*
 * Reports a failure to the program: the status is returned, and the text is kept for
 * this thread. `return status_fail(CRUN_CORRUPT, "%s: ...", path);`
 */
crun_status status_fail(crun_status s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same with the text of an error; CRUN_OK changes nothing. */
crun_status status_fail_with(crun_status s, const struct err *e);
