/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * The time until which workers may live without news from the rendezvous: the agent
 * moves it on whenever the rendezvous answers, and the guard ends the workers when it
 * has passed, whatever the state of the agent. Pure; times are of clock_ms, which
 * counts a suspend.
 *
 * A guard that notices it much too late was asleep, as was the agent: the agent then
 * gets some time to hear from the rendezvous before the fence counts as passed.
 */
struct fence_terms {
    uint64_t until_ms;
    uint32_t grace_ms;     /* for the workers, from TERM to KILL */
    uint32_t extension_ms; /* after a sleep; 0: none */
};

/*
 * The terms of an agent that gives up at until_ms itself. Strict: the workers must be
 * gone before the lease has run out (until_ms leaves a fifth of it), also after a
 * sleep. Otherwise the agent gets some time to end them in good order.
 */
struct fence_terms fence_terms_of(bool strict, uint64_t until_ms, uint32_t lease_ms,
                                  uint32_t failure_grace_ms);

struct fence { /* zeroed: no fence */
    struct fence_terms terms;
    uint64_t extended_until_ms;
    bool paused;
};

/* Terms that end earlier than those in force change nothing. */
void fence_renew(struct fence *f, const struct fence_terms *terms);
bool fence_passed(struct fence *f, uint64_t now_ms);
/* While agent and workers are stopped by Ctrl-Z, terms with an extension do not pass;
 * the agent then gets that time to hear from the rendezvous. */
void fence_pause(struct fence *f);
void fence_resume(struct fence *f, uint64_t now_ms);
/* How long the workers have to end once it has passed. Without an extension the grace
 * counts from until_ms: workers found after a sleep are killed at once. */
uint32_t fence_grace_left_ms(const struct fence *f, uint64_t now_ms);
/* When to call fence_passed next; 0: never. */
uint64_t fence_next_ms(const struct fence *f);
