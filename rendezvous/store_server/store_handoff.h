/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_STORE_SERVER_STORE_HANDOFF_H
#define RENDEZVOUS_STORE_SERVER_STORE_HANDOFF_H

/*
 * Sockets that other threads hand over to the store's, which it is woken to take. Any
 * thread may put and wake; one takes.
 */
struct store_inbox;

/* NULL: see errno. */
struct store_inbox *store_inbox_create(void);
void store_inbox_destroy(struct store_inbox *i); /* closes what is in it */

int store_inbox_fd(const struct store_inbox *i); /* readable: there is something */
void store_inbox_wake(struct store_inbox *i);
void store_inbox_put(struct store_inbox *i, int fd);
/* All that is there, which belongs to fn then. */
void store_inbox_take(struct store_inbox *i, void (*fn)(void *arg, int fd), void *arg);

#endif
