/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_ENGINE_FAILURE_NOTICE_H
#define WORKER_LIB_ENGINE_FAILURE_NOTICE_H

#include "rendezvous/common/base/id128.h"
#include "worker-lib/engine/abort.h"
#include "worker-lib/meeting/store_client.h"

/*
 * The failure notice: the message that the first rank that fails leaves in the store,
 * for ranks to which it has no connection, or no longer. It ends the job, so it has a
 * tag that only a process with the token of the world can make: a value without it is
 * ignored, and replaced by the next notice.
 */
struct notice_board {
    struct store_client *store;
    const char *prefix; /* of keys; the world's */
    struct id128 token; /* which all ranks of the world know */
};

void failure_notice_write(const struct notice_board *b, const struct abort_notice *n);

/* 1: there is a notice, 0: there is none, -1: the store does not answer. */
int failure_notice_find(const struct notice_board *b, struct abort_notice *n);
/* False: there is none, or the store does not answer. */
bool failure_notice_read(const struct notice_board *b, struct abort_notice *n);

/* Waits until there is a notice. False: the connection to the store is lost. */
bool failure_notice_await(const struct notice_board *b, struct abort_notice *n);

/* The same as failure_notice_read; sets the abort word. For a backend whose connection
 * ends. */
bool failure_notice_abort(const struct notice_board *b, struct abort_word *into);

/* store_client_get for a key that another rank sets while the ranks meet. If a rank
 * fails meanwhile, it ends with the status and the text of its notice. */
crun_status failure_notice_await_key(const struct notice_board *b, const char *key,
                                     void *value, size_t *size, uint64_t deadline_ms,
                                     struct err *e);

#endif
