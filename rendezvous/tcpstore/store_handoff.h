/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_TCPSTORE_STORE_HANDOFF_H
#define RENDEZVOUS_TCPSTORE_STORE_HANDOFF_H

/*
 * Sockets that other threads hand over to the thread of the store. Any thread may put
 * and wake; one takes.
 */
struct store_handoff;

/* NULL: see errno. */
struct store_handoff *store_handoff_create(void);
void store_handoff_destroy(struct store_handoff *i); /* closes the sockets in it */

int store_handoff_fd(const struct store_handoff *i); /* readable: take */
void store_handoff_wake(struct store_handoff *i);
void store_handoff_put(struct store_handoff *i, int fd);
/* Calls fn for each socket; fn then owns it. */
void store_handoff_take(struct store_handoff *i, void (*fn)(void *arg, int fd),
                        void *arg);

#endif
