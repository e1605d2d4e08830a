/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_LIMITS_H
#define LAUNCHER_LIMITS_H

/* What a job is given where the user does not say, and the most that may be said. */
#define LEASE_MS_DEFAULT 15000
#define OUTAGE_GRACE_MS_DEFAULT 300000
#define JOIN_TIMEOUT_MS_DEFAULT 600000
#define LAST_CALL_MS_DEFAULT 30000
#define SHUTDOWN_GRACE_MS_DEFAULT 30000
#define FAILURE_GRACE_MS_DEFAULT 5000
#define RESTART_BACKOFF_MS_DEFAULT 60000
#define QUARANTINE_DEFAULT 3
#define HANG_TIMEOUT_MS_MAX 100000000

#endif
