/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_BLAME_H
#define WORKER_LIB_BLAME_H

#include "worker-lib/backend.h"

/*
 * Who waits in vain may wait for one that itself waits: between nodes there are chains
 * of that, and only who is at the end of one is to blame. So everybody whose time is
 * over says in the store for whom it has waited, and then follows the chain from there.
 *
 * e has the words of `rank` for its wait for `accused` (ranks of the world), which has
 * lasted timeout_ms, and then those of the last in the chain, or why this world was
 * ended meanwhile: that status is returned, else CRUN_TIMEOUT. Takes a quarter of that
 * time, one second at least and five at most; the prefix is the world's.
 */
crun_status blame_settle(struct store_client *store, const char *prefix, unsigned rank,
                         unsigned accused, uint64_t timeout_ms,
                         const struct abort_word *aborted, struct err *e);

#endif
