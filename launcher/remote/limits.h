/* SPDX-License-Identifier: MIT */
#pragma once

/* Connections to hosts. sshd refuses some of those that come at once (MaxStartups). */
#define REMOTE_CONNECTING_MAX 32
#define REMOTE_LATE_HOSTS_MAX 1024 /* that come while a job runs */
#define REMOTE_ANSWER_MS 60000 /* from the start of ssh, and from the next command */
#define REMOTE_PUSH_MS 120000  /* for the binary to arrive there */
#define REMOTE_READY_MS 120000 /* to check an order: file servers may be slow */
#define REMOTE_RETRY_MS 1000   /* before the second attempt; up to twice as long */
#define REMOTE_ATTEMPTS_MAX 2
#define REMOTE_SAID_MAX 2048 /* of what ssh and the remote shell say */

/* Each side knows by these that the other one is there. */
#define REMOTE_PING_MS 10000
#define REMOTE_SILENCE_MS 45000

/* The end of a job. */
#define REMOTE_OTHERS_END_MS 15000 /* after node rank 0 has ended */
#define REMOTE_KILL_MS 10000       /* after the workers' own grace */
#define REMOTE_CLOSE_MS 2000       /* for ssh to end once it is told to */
#define REMOTE_SUSPEND_MS 100      /* from Ctrl-Z to the launcher's own stop */
#define REMOTE_DRAIN_MS 1000       /* for the rest of the output of a crun that ended */

/* Output that waits. */
#define REMOTE_OUT_MAX (256u << 10) /* in a far side, before it stops reading */
#define REMOTE_IN_WINDOW 65536      /* of standard input, on its way to the worker */

#define REMOTE_ADDRESSES_MAX 16 /* of one host */
