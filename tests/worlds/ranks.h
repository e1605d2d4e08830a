/* SPDX-License-Identifier: MIT */
#ifndef TESTS_WORLDS_RANKS_H
#define TESTS_WORLDS_RANKS_H

#include "worker-lib/crun/worker.h"

/* Worlds whose ranks are threads of this process, with a store of their own. */
struct ranks_config {
    unsigned size;
    unsigned per_node;   /* 0: all on one */
    const char *backend; /* NULL: auto */
    double timeout_s;    /* 0: patience */
};

/* In each rank's thread; what fails there ends the test. */
typedef void ranks_fn(crun_world *world, void *arg);

/* Run it in all ranks, between crun_init and crun_finalize. */
void ranks_run(const struct ranks_config *config, ranks_fn *fn, void *arg);

/* A barrier that a thread sanitizer sees, unlike what is in shared memory. */
void ranks_sync(void);

#define ranks_ok(call)                                                                 \
    ck_assert_msg((call) == CRUN_OK, "%s: %s", #call, crun_error_text())

#endif
