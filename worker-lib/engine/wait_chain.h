/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_ENGINE_WAIT_CHAIN_H
#define WORKER_LIB_ENGINE_WAIT_CHAIN_H

#include "worker-lib/engine/backend.h"

/*
 * Who waits in vain may wait for one that itself waits: between nodes there are chains
 * of that, and only who is at the end of one is to blame. So everybody whose time is
 * almost over says in the store for whom it waits, and follows the chain from there
 * when it is over. Ranks of the world, and its prefix.
 */
struct wait_chain {
    struct store_client *store;
    const char *prefix;
    unsigned rank;
    bool said;
    unsigned accused; /* of whom it was said */
};

/* So long before the end of a wait of timeout_ms its rank is to begin to say so: the
 * others may have begun theirs so much later. */
uint64_t wait_chain_early_ms(uint64_t timeout_ms);
/* Of another than before, or for the first time; else nothing is done. */
void wait_chain_say(struct wait_chain *b, unsigned accused, const char *text);
/* The wait has ended well. */
void wait_chain_withdraw(struct wait_chain *b);

/*
 * e has the words of the rank for its wait for `accused`, which has lasted timeout_ms,
 * and then those of the last in the chain, or why this world was ended meanwhile: that
 * status is returned, else CRUN_TIMEOUT. Where all have said so early it takes a moment
 * (more for timeouts of less than two seconds), else a quarter of that time, one second
 * at least and five at most.
 */
crun_status wait_chain_settle(struct wait_chain *b, unsigned accused,
                              uint64_t timeout_ms, bool early,
                              const struct abort_word *aborted, struct err *e);

#endif
