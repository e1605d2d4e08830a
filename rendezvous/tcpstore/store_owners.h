/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_TCPSTORE_STORE_OWNERS_H
#define RENDEZVOUS_TCPSTORE_STORE_OWNERS_H

#include <stddef.h>
#include <stdint.h>

#include "rendezvous/tcpstore/store_server.h"

/*
 * Connections of other machines that are held until another thread says whether their
 * owner is the right one. The store's thread holds and forgets connections and takes
 * answers; the other thread takes questions and answers them.
 */
struct store_owners;

/* NULL: see errno. */
struct store_owners *store_owners_create(void);
void store_owners_destroy(struct store_owners *o); /* NULL is fine */

/* The store's thread: conn is held. Returns the number of its question. */
uint64_t store_owners_hold(struct store_owners *o, void *conn,
                           const struct net_addr *client, const struct net_addr *store);
/* The connection is closed: an answer to its question has no effect. */
void store_owners_forget(struct store_owners *o, uint64_t number);
/* Calls fn for each connection whose question is answered. It is no longer held. */
void store_owners_take_answers(struct store_owners *o,
                               void (*fn)(void *arg, void *conn, const char *why),
                               void *arg);

/* The other thread: see store_server.h. */
int store_owners_fd(const struct store_owners *o);
size_t store_owners_take_questions(struct store_owners *o, struct store_question *out,
                                   size_t max);
void store_owners_answer(struct store_owners *o, uint64_t number, const char *why);

#endif
