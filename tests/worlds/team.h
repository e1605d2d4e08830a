/* SPDX-License-Identifier: MIT */
#ifndef TESTS_WORLDS_TEAM_H
#define TESTS_WORLDS_TEAM_H

#include "worker-lib/engine/backend.h"

/*
 * A team whose ranks are threads of this process, with a store of its own: a backend is
 * opened in each, `body` called, and the backend closed.
 */
struct team_member {
    const struct backend_calls *calls;
    struct team team;
    struct backend *backend; /* body may close it and set it to NULL */
    struct abort_word aborted;
    crun_status opened;
    struct err e;
    uint64_t sequence; /* of the last collective */
    void *arg;
};

struct team_plan {
    const struct backend_calls *calls;
    unsigned size;
    const unsigned *node; /* of each rank; NULL: all on one */
    void (*body)(struct team_member *m);
    void *arg;
    unsigned open_ms;  /* 0: generous */
    bool may_not_open; /* then body is called with `opened` set; else it is a failure */
};

void team_run(const struct team_plan *plan);

#define TEAM_DEADLINE_MS 60000

/* One operation with the next sequence and a generous deadline; e is set on failure. */
crun_status session_run(struct team_member *m, struct op op);

#endif
