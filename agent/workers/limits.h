/* SPDX-License-Identifier: MIT */
#ifndef AGENT_WORKERS_LIMITS_H
#define AGENT_WORKERS_LIMITS_H

/* How long the agent reads what a worker that has exited wrote. */
#define WORKER_DRAIN_MS 2000 /* if its exit code is 0 */
#define FAILED_DRAIN_MS                                                                \
    100 /* of one that has failed: other nodes wait for the report */

#endif
