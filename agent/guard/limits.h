/* SPDX-License-Identifier: MIT */
#pragma once

/* Limits of the guard and of the fence. */
#define GUARD_END_MS 5000 /* for the guard to exit after its last request */
#define GUARD_LAST_MS                                                                  \
    5000 /* from KILL to ending the guard, and from there to giving up */
#define FENCE_LATE_MS 1000 /* a check so late: the machine was suspended ... */
#define FENCE_EXTENSION_MS                                                             \
    5000 /* ... and the agent gets this time to hear from the rendezvous */
#define FENCE_MARGIN_MS 1000 /* for the agent to end its workers itself */
