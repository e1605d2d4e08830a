/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_CORE_STATUS_H
#define WORKER_LIB_CORE_STATUS_H

#include "rendezvous/base/err.h"
#include "worker-lib/crun/worker.h"

/*
 * How a failure becomes what the caller sees: the status is returned, the words are
 * kept for this thread. `return status_fail(CRUN_CORRUPT, "%s: ...", path);`
 */
crun_status status_fail(crun_status s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same for words that a struct err has gathered below; CRUN_OK leaves all alone. */
crun_status status_fail_with(crun_status s, const struct err *e);

#endif
