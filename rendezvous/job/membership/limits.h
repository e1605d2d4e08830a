/* SPDX-License-Identifier: MIT */
#pragma once

/* How long a job waits, and how much it remembers. */
#define STOP_MARGIN_MS 30000      /* past the grace, a node that cannot stop is lost */
#define STORE_START_MS 30000      /* rank 0's node opens the store in this time */
#define CHECKPOINT_WAIT_MS 120000 /* a scale-up that waits for a checkpoint */
#define RESTART_BACKOFF_FIRST_MS 1000 /* then twice it, again and again */
#define RESTARTS_AT_ONCE 2
#define BLAME_WAIT_MS 5000 /* for the failure that caused the one just reported */
#define CRASH_LOOP_MS 5000 /* an epoch that failed in this time is part of one */
#define QUARANTINE_WINDOW_MS 600000
#define EPOCHS_LOST_MAX 1000000 /* a node may know so many more than its rendezvous */
#define PASTS_MAX 64            /* nodes whose troubles are remembered */
