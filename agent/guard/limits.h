/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GUARD_LIMITS_H
#define AGENT_GUARD_LIMITS_H

/* How long the guard and its end may take, and when the fence ends the workers. */
#define GUARD_END_MS 5000      /* from its last order to its exit */
#define GUARD_LAST_MS 5000     /* after its KILL: then it is killed too, then left */
#define FENCE_LATE_MS 1000     /* a look so late: the machine was suspended ... */
#define FENCE_PATIENCE_MS 5000 /* ... and the rendezvous is heard first */
#define FENCE_MARGIN_MS 1000   /* for the agent to end its workers itself */

#endif
