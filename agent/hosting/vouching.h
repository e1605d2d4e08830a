/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/tcpstore/store_server.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * Rank 0's node asks to whom the connections to its store belong. PyTorch's client
 * proves nothing, but the agent of its machine can look its socket up. Connections of
 * one machine are asked for together, and there is one question about a machine at a
 * time: many connections of one, or an agent that does not answer, delay no other.
 * Pure: its owner passes questions and answers on.
 */
struct vouching;

struct vouching_calls {
    /* Ask the rendezvous; `rendezvous` is not set. */
    void (*ask)(void *arg, struct msg_ask_owners *question,
                const struct net_addr *host);
    /* The answer to a question of the store, as in store_server_answer. */
    void (*answer)(void *arg, uint64_t number, const char *why);
    void *arg;
};

struct vouching *vouching_create(const struct vouching_calls *calls);
void vouching_destroy(struct vouching *v); /* without answers; NULL is fine */

/* The store asks. */
void vouching_add(struct vouching *v, const struct store_question *q);
/* After all that were added in a turn. */
void vouching_flush(struct vouching *v, uint64_t now_ms);
/* OWNERS_FOUND has come. */
void vouching_found(struct vouching *v, const struct msg_owners *found,
                    uint64_t now_ms);
/* The rendezvous was away, and may have forgotten: ask again. */
void vouching_ask_again(struct vouching *v);

void vouching_tick(struct vouching *v, uint64_t now_ms);
uint64_t vouching_next_tick(const struct vouching *v); /* UINT64_MAX: none */
