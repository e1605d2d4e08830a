/* SPDX-License-Identifier: MIT */
#ifndef AGENT_WORKERS_LIMITS_H
#define AGENT_WORKERS_LIMITS_H

/* How long the output of an exited worker is read. */
#define WORKER_DRAIN_MS 2000 /* if it succeeded */
#define FAILED_DRAIN_MS 100  /* if it failed: other nodes wait for the report */

/* What a worker wrote longer ago than this is not why it has failed. An interpreter may
 * take seconds to end after its last words. */
#define ERROR_AGE_MAX_MS 10000
/* A worker that lives on after a traceback for longer than this has handled the error.
 */
#define TRACEBACK_AGE_MAX_MS 1000

#endif
