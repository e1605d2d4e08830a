/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/meeting/environment.h"
#include "worker-lib/meeting/store_client.h"

/*
 * Checks that the nodes of the job reach each other. The first worker of each node
 * listens, publishes its address in the store, gets all addresses from node 0, probes
 * the links (link_probe.h) and publishes the results. Node 0 decides which nodes are
 * unfit, and every worker reads that.
 */
struct connectivity {
    const struct environment *env;
    struct store_client *store;
    uint64_t begin_ms, limit_ms;
};

enum connectivity_result {
    CONNECTIVITY_COMPLETE,     /* each node reaches every other */
    CONNECTIVITY_UNFIT,        /* this node is unfit; `why` has the reason */
    CONNECTIVITY_OTHERS_UNFIT, /* other nodes are unfit, or node 0 does not answer */
};

enum connectivity_result connectivity_check(const struct connectivity *r, char *why,
                                            size_t size);
