/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/job/membership/membership.h"
#include "rendezvous/wire/protocol/rank_ranges.h"

struct job;
struct node_ask;
struct registry;
struct registry_peer;

/*
 * A question to some nodes of a job: their answers count until its deadline, and a node
 * that has not answered by then is named. The first member of a struct for each type.
 */
struct node_ask_type {
    bool is_of_epoch; /* it ends with the epoch */
    bool outlives_peer;
    /* The node has not answered. why "": in time. */
    void (*miss)(struct node_ask *a, const char *host, const char *why);
    /* No answers will follow. */
    void (*conclude)(struct registry *g, struct node_ask *a);
    void (*fini)(struct node_ask *a); /* or NULL */
};

struct node_ask {
    const struct node_ask_type *type;
    uint64_t number;
    struct job *job;
    struct registry_peer *peer; /* crunctl, or NULL */
    uint64_t sequence;          /* of its question */
    uint64_t deadline_ms;
    bool *owed; /* by the membership's index: nodes that have not answered */
    uint32_t owing;
    struct node_ask *next;
};

/* `a` is allocated, and its type set. */
void node_ask_add(struct registry *g, struct node_ask *a, struct job *job,
                  uint64_t deadline_ms);
unsigned node_asks_count(const struct registry *g, const struct node_ask_type *type);
/* Whether one of these ranks is of the node; without ranks, all are. */
bool node_has_any_rank(const struct membership_node *n,
                       const struct rank_ranges *ranks);
/* The node was asked. */
void node_ask_owe(struct node_ask *a, uint32_t node);
/* The question that this peer's node answers, or NULL. */
struct node_ask *node_ask_find(const struct registry_peer *p,
                               const struct node_ask_type *type, uint64_t number);
/* The node's answer is complete. */
void node_ask_settle(struct registry *g, struct node_ask *a, uint32_t node);
/* With the answers that there are. */
void node_ask_finish(struct registry *g, struct node_ask *a);
