/* SPDX-License-Identifier: MIT */
#pragma once

/* Connections of browsers: all, and those of one user of this machine or one address.
 */
#define WEB_CONNS_MAX 64
#define WEB_CONNS_OF_SOURCE_MAX 48
/* The rest is for this process's user and root, on this machine: probes of /healthz and
 * who would look at what happens find room beside a flood. */
#define WEB_CONNS_OF_OTHERS_MAX 56

/* A request: its head, and until when it must be complete. */
#define WEB_HEAD_MAX (16u << 10)
#define WEB_HEAD_LINES_MAX 100
#define WEB_TARGET_MAX 1024
#define WEB_HEAD_MS 10000
/* An answer must have been read by then; a live view is closed after that time, and the
 * browser opens it again. */
#define WEB_ANSWER_MS 60000
#define WEB_REFUSED_MS 1000 /* of a wrong request */
#define WEB_LIVE_MS 3600000

/* A live view: how often there is news, what is sent when there is none, and how long a
 * browser may leave its news unread. */
#define WEB_LIVE_EVERY_MS 1000
#define WEB_HEARTBEAT_MS 15000
#define WEB_UNREAD_MS 30000
#define WEB_END_MS 3000 /* after the end of a job nothing more comes */

/* An answer counts that long for all viewers that may see the same. */
#define WEB_SHARED_MS 1000
#define WEB_SHARED_MAX 32

#define WEB_PAST_JOBS_MAX 100 /* in the list: jobs that are over and kept */

/* What making answers may cost: a share of one core, and how much of it at once. */
#define WEB_RENDER_PERCENT 10
#define WEB_RENDER_BURST_US 500000

/* Links of crunctl page: how many count at a time, for how long they can be followed,
 * and how long the browser that has followed one keeps its rights. */
#define WEB_GRANTS_MAX 32
#define WEB_LINK_MS (10 * 60 * 1000)
#define WEB_GRANT_MS (12 * 3600 * 1000)

/* The page of a rank asks its node. */
#define WEB_ASKS_MAX 8
#define WEB_ASK_MS 5000
#define WEB_STACKS_EVERY_MS 2000
#define WEB_LOG_TAIL 200 /* lines */
#define WEB_LOG_BYTES (64u << 10)

#define WEB_CLOCK_STEP_MS 100 /* less is no step of the wall clock */
#define WEB_NAMES_MAX 16
#define WEB_BACKLOG 128
#define WEB_SEND_BUFFER (128 << 10) /* the kernel may use twice that */
