/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/engine/backend.h"

/*
 * Two backends in one: shared memory among the ranks of this node, and TCP between
 * nodes. Ranks that have the same place in their nodes communicate between nodes, each
 * with its share of the data; if nodes have different numbers of ranks, only the first
 * rank of each node does.
 *
 * backend_hierarchical.c opens and closes, hierarchical_ops.c has the operations.
 */
#define HIERARCHICAL_STEPS_MAX (1u << 20) /* between nodes, of one operation */

struct hierarchical {
    struct backend base;
    struct backend *local, *all;
    const struct backend_calls *local_calls;
    struct team team; /* of the world */
    unsigned *local_world_rank, *local_node, *across, *place;
    unsigned local_rank, local_size, node, node_count;
    unsigned across_size; /* 0: this rank does not talk to other nodes */
    bool even;            /* as many ranks on every node */
    bool in_order;        /* and rank = node * local_size + place */
    char *prefix;
    uint64_t local_sequence;
    uint64_t steps; /* between nodes, of this operation */
    float *wide;    /* for sums of halves */
    uint8_t *scratch;
    size_t scratch_bytes;
};

crun_status hierarchical_all_reduce(struct hierarchical *n, const struct op *op,
                                    struct err *e);
crun_status hierarchical_broadcast(struct hierarchical *n, const struct op *op,
                                   struct err *e);
crun_status hierarchical_reduce_scatter(struct hierarchical *n, const struct op *op,
                                        struct err *e);
crun_status hierarchical_all_gather(struct hierarchical *n, const struct op *op,
                                    struct err *e);
crun_status hierarchical_barrier(struct hierarchical *n, const struct op *op,
                                 struct err *e);
crun_status hierarchical_messages(struct hierarchical *n, const struct op *op,
                                  struct err *e);
/* Over TCP only, as if every rank were on a separate node. */
crun_status hierarchical_flat(struct hierarchical *n, const struct op *op,
                              struct err *e);
