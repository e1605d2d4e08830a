/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "worker-lib/crun/worker.h"

/*
 * A client of the store at MASTER_ADDR:MASTER_PORT, which speaks PyTorch's TCPStore
 * protocol. One connection; calls are serialised inside, so any thread may make them. A
 * timeout fails only that call: the next one opens a new connection. Once the server
 * has hung up, all calls fail at once. Keys are used as given: the caller adds its
 * prefix.
 */
struct store_client;
struct environment;

/* Tries again until the deadline (clock_ms): the server may be late. */
crun_status store_client_open(struct store_client **s, const char *host, uint16_t port,
                              uint64_t deadline_ms, struct err *e);
/* The same to the store of a job: by TLS if the agent has said how. */
crun_status store_client_open_job(struct store_client **s,
                                  const struct environment *env, uint64_t deadline_ms,
                                  struct err *e);
/* The address of this node's end of the connection to the store, without a port.
 * Returns buf. */
char *store_client_address(const struct store_client *s, char *buf, size_t size);
void store_client_close(struct store_client *s); /* NULL is fine */

/* Another connection to the same store, for a call that waits for long. */
crun_status store_client_open_another(struct store_client **s,
                                      const struct store_client *like,
                                      uint64_t deadline_ms, struct err *e);
/* A descriptor of the connection, for another thread: shutdown(2) ends a call that
 * waits, as if the server had hung up. The caller closes it. -1: there is none. */
int store_client_handle(const struct store_client *s);

crun_status store_client_set(struct store_client *s, const char *key, const void *value,
                             size_t size, uint64_t deadline_ms, struct err *e);
/* Waits for the key. *size is the space in the buffer, then the size of the value;
 * CRUN_BAD_ARGUMENT: too small. */
crun_status store_client_get(struct store_client *s, const char *key, void *value,
                             size_t *size, uint64_t deadline_ms, struct err *e);
/* Sets the key if it has no value. Afterwards `value` is that of the key, the same for
 * all callers; *size as for store_client_get. */
crun_status store_client_agree(struct store_client *s, const char *key, void *value,
                               size_t *size, uint64_t deadline_ms, struct err *e);
/* 1: the key exists, 0: it does not; does not wait. -1: no connection to the store. */
int store_client_has(struct store_client *s, const char *key, uint64_t deadline_ms);
crun_status store_client_add(struct store_client *s, const char *key, int64_t amount,
                             int64_t *sum, uint64_t deadline_ms, struct err *e);
crun_status store_client_delete(struct store_client *s, const char *key,
                                uint64_t deadline_ms, struct err *e);
