/* SPDX-License-Identifier: MIT */
#pragma once

/* Defaults and limits of the flags. */
#define SIGNALS_DEFAULT "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
#define LEASE_MS_DEFAULT 15000
#define OUTAGE_GRACE_MS_DEFAULT 300000
#define JOIN_TIMEOUT_MS_DEFAULT 600000
#define LAST_CALL_MS_DEFAULT 30000
/* kubelet and slurmd kill after 30 s: crun must have reported by then */
#define SHUTDOWN_GRACE_MS_DEFAULT 25000
#define FAILURE_GRACE_MS_DEFAULT 5000
#define SURVIVOR_GRACE_MS_DEFAULT 300 /* nothing can be saved without a peer */
#define SILENCE_WARNING_MS_DEFAULT 300000
#define RESTART_BACKOFF_MS_DEFAULT 60000
#define QUARANTINE_DEFAULT 3
#define HANG_TIMEOUT_MS_MAX 100000000
#define LOG_MAX_SIZE_MIN 65536
#define MEMORY_SIZE_MIN 65536
#define TIME_LIMIT_S_MAX (1000 * 86400)
