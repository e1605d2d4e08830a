/* SPDX-License-Identifier: MIT */
#pragma once

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

/* Tries for two seconds if the store does not answer: what others have been told
 * decides what they believe. */
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

/*
 * CRUN_OK: no rank has ended the world so far, as the abort word and a fresh look into
 * the store say. What a collective has put into a GPU's memory, and what was computed
 * from it, is right if this is asked when it is there: an abort lets the GPUs of all
 * ranks finish with wrong values, and a rank tells the others before it aborts. Else
 * the status of the notice, or CRUN_PEER_LOST if the store does not answer.
 */
crun_status failure_notice_check(const struct notice_board *b, struct abort_word *word,
                                 struct err *e);

/* store_client_get for a key that another rank sets while the ranks meet. If a rank
 * fails meanwhile, it ends with the status and the text of its notice. */
crun_status failure_notice_await_key(const struct notice_board *b, const char *key,
                                     void *value, size_t *size, uint64_t deadline_ms,
                                     struct err *e);
