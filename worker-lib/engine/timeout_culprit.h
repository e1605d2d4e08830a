/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/engine/backend.h"

/*
 * Finds the rank at fault for a timeout. A late rank may itself wait for another rank:
 * between nodes there are chains of waiting ranks, and only the rank at the end of a
 * chain is at fault. So every rank whose deadline is near writes to the store which
 * rank it waits for, and after the deadline follows the chain from there. The ranks,
 * and the prefix of the keys, are the world's.
 */
struct timeout_culprit {
    struct store_client *store;
    const char *prefix;
    unsigned rank;
    bool written;
    unsigned accused; /* the rank that was written */
};

/* How long before the end of a wait of timeout_ms the rank begins to write: the waits
 * of the others may have begun that much later. */
uint64_t timeout_culprit_early_ms(uint64_t timeout_ms);
/* Does nothing if the same rank was written before. */
void timeout_culprit_report(struct timeout_culprit *b, unsigned accused,
                            const char *text);
/* The wait has succeeded: removes the entry. */
void timeout_culprit_withdraw(struct timeout_culprit *b);

/*
 * The rank has waited for `accused` for timeout_ms, as the text of e says. Afterwards e
 * has the text of the last rank in the chain, and CRUN_TIMEOUT is returned; if the
 * world was aborted in the meantime, e has the reason, and its status is returned. If
 * all ranks have written early this takes a moment (longer for timeouts of less than
 * two seconds), else a quarter of timeout_ms, at least one second and at most five.
 */
crun_status timeout_culprit_settle(struct timeout_culprit *b, unsigned accused,
                                   uint64_t timeout_ms, bool early,
                                   const struct abort_word *aborted, struct err *e);
