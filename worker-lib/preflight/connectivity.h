/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_PREFLIGHT_CONNECTIVITY_H
#define WORKER_LIB_PREFLIGHT_CONNECTIVITY_H

#include "worker-lib/meeting/environment.h"
#include "worker-lib/meeting/store_client.h"

/*
 * Do the nodes of the job reach each other? The first worker of each listens, says
 * where in the store, hears from node 0 where all are, calls them (link_probe.h), and
 * says whom it has reached; node 0 judges, and every worker hears that.
 */
struct reach {
    const struct environment *env;
    struct store_client *store;
    uint64_t begin_ms, patience_ms;
};

enum reach_result {
    REACH_ALL,    /* each node every other */
    REACH_UNFIT,  /* this node is to go: why says why */
    REACH_OTHERS, /* others are to go, or node 0 does not judge: the same */
};

enum reach_result reach_find(const struct reach *r, char *why, size_t size);

#endif
