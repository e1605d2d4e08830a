/* SPDX-License-Identifier: MIT */
#pragma once

/* The part of --shutdown-timeout for which processes that successful workers have left
 * may go on, and their output is read; then they are told to end. */
#define LEFTOVERS_PART 5
#define WORKER_DRAIN_MS 2000     /* their output at least */
#define LEFTOVERS_REPORT_MS 1000 /* after SIGTERM, if they have not ended before */
/* How long the output of a failed worker is read: other nodes wait for the report. */
#define FAILED_DRAIN_MS 100
#define SAVING_LOOK_MS 20 /* whether a checkpoint is still written */

/* What a worker wrote longer ago than this is not why it has failed. */
#define ERROR_AGE_MAX_MS 10000
/* Unless it is a traceback, the last that it wrote: on a busy machine an interpreter
 * with torch takes up to 40 s to end after that. */
#define LAST_TRACEBACK_AGE_MAX_MS 60000
/* A worker that lives on after a traceback for longer than this has handled the error.
 */
#define TRACEBACK_AGE_MAX_MS 1000
