/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/job/membership/membership.h"

/*
 * A membership with its owner played by the test: time is a variable, and what the
 * membership wants done is kept in a list.
 */
#define CAPACITY 16
#define ACTIONS_MAX 512

extern struct membership_world {
    struct membership r;
    struct membership_node node[CAPACITY];
    uint32_t slot_node[CAPACITY], bucket[CAPACITY];
    uint64_t slot_identity[CAPACITY];
    uint64_t now;
    struct membership_action action[ACTIONS_MAX];
    unsigned actions;
    bool edge_taken[64];
} w;

extern const struct membership_memory memory; /* that of w */

struct job_config small_job_config(uint32_t min, uint32_t max, uint32_t restarts);
void begin_membership_with(struct job_config c);
void begin_membership(uint32_t min, uint32_t max, uint32_t restarts);

/* The incarnation of the n-th agent. */
struct id128 incarnation_of(unsigned n);

/* How often the last step asked for this, of this node (MEMBERSHIP_NONE: of any). */
unsigned times_asked(enum membership_action_type type, uint32_t node);

enum membership_verdict take_event(struct membership_event ev, uint32_t *node);
enum membership_verdict send_event_of(enum membership_event_type type, uint32_t node,
                                      uint64_t epoch);
enum membership_verdict send_event(enum membership_event_type type, uint32_t node);
enum membership_verdict fail_worker_at(uint32_t node, uint64_t at_ms, int32_t code);

/* The n-th agent joins from a host of its own, or from the one given. */
enum membership_verdict try_join_agent(unsigned n, uint32_t slot, uint32_t workers,
                                       uint32_t *node);
enum membership_verdict try_join_agent_from(unsigned n, uint64_t host, uint32_t *node);
uint32_t join_agent(unsigned n);

/* Pass time in ticks; every connected node named in `alive` keeps its lease. */
#define ALL_ALIVE ~0u
void pass_time(uint64_t ms, unsigned alive_mask);

/* n nodes of a job of n:max, running, the store open. */
void run_nodes(uint32_t n);
void run_membership(uint32_t min, uint32_t max, uint32_t restarts, uint32_t n);
void stop_all_nodes(void);
