/* SPDX-License-Identifier: MIT */
#pragma once

#include "tests/worlds/rank_threads.h"
#include "worker-lib/crun/worker.h"
#include "worker-lib/engine/backend.h"

/*
 * Ranks that are threads of the test, with a store of their own: of a backend alone, or
 * of a whole world. What the world's callers can see without any backend is tested with
 * tests/worlds/world_stub.h.
 */

/* -- backends ---------------------------------------------------------------------- */

/* One rank: its backend is opened, `body` is called, and the backend is closed. */
struct team_member {
    const struct backend_calls *calls;
    struct team team;
    struct notice_board board;
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
    const char *address; /* of each node; NULL: 127.0.0.1 */
    unsigned open_ms;    /* 0: generous */
    bool may_not_open; /* then body is called with `opened` set; else it is a failure */
};

void team_run(const struct team_plan *plan);

#define TEAM_DEADLINE_MS 60000

/* One operation with the next sequence and a generous deadline; e is set on failure. */
crun_status team_member_run(struct team_member *m, struct op op);

/* -- worlds of the library --------------------------------------------------------- */

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

/* How many keys the store of the ranks has. Until the ranks have ended, the number may
 * be that of a moment ago. */
uint64_t ranks_store_keys(void);

#define ranks_ok(call)                                                                 \
    ck_assert_msg((call) == CRUN_OK, "%s: %s", #call, crun_error_text())
