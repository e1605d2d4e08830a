/* SPDX-License-Identifier: MIT */
#pragma once

/* How much the daemon keeps of its jobs, and how much of it fits in one answer. */
#define JOBS_MAX 4096
#define JOBS_PER_SOURCE_MAX 256    /* that have not ended, by the address of a host */
#define NODES_PER_SOURCE_MAX 16384 /* of all jobs */
#define FINISHED_KEPT_MS 3600000   /* a job that has ended can be inspected so long */
#define EVENTS_KEPT 1024
#define NOTES_PER_EPOCH_MAX 512 /* remarks of a job's nodes */
#define BUSY_COMPARED_MS 1000   /* how often the nodes of a job are compared */
#define STATUS_PER_PAGE 256
#define STACKS_DEADLINE_MS 2000   /* until a node counts as silent */
#define LOGS_DEADLINE_MS 2000     /* likewise; more than LOGS_WAIT_MS_MAX */
#define OWNERS_DEADLINE_MS 4000   /* less than the store waits */
#define OWNERS_ASKS_MAX 256       /* of a job */
#define HOLD_DEADLINE_MS 5000     /* of what is in memory; agents end it later */
#define FLUSH_DEADLINE_MS 3600000 /* to write it to files */
#define STACKS_ASKS_MAX 64        /* of all jobs */
#define LOGS_PIECES_MAX 256       /* of one node for one question */
#define LOGS_ASKS_MAX 64          /* of all jobs */
/* With more nodes, the memory of another number of workers is not restored: each node
 * would be sent the names of all. */
#define MEMORY_RESHAPE_NODES_MAX 256
#define MEMORY_NEIGHBOURS_MAX 256   /* slots in which another host is looked for */
#define MEMORY_SHARED_HOLDERS_MAX 4 /* that a node is told of */
