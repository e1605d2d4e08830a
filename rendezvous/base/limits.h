/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_BASE_LIMITS_H
#define RENDEZVOUS_BASE_LIMITS_H

/*
 * Every cap and every deadline, in one place: no queue without a bound, no wait
 * without an end. A number that a user may change is the default of a flag.
 */

/* names */
#define RUN_ID_MAX 128
#define HOST_NAME_MAX_BYTES 255
#define ADDRESS_MAX_BYTES 255
#define PROGRAM_MAX_BYTES 255
#define ROLE_MAX_BYTES 255
#define ERROR_TEXT_MAX_BYTES 511
#define FAILURE_TEXT_MAX_BYTES 4096
#define NOTICE_MAX_BYTES 511
#define NO_RESTART_ON_MAX_BYTES 255

/* a job */
#define NODES_MAX 16384
#define WORKERS_PER_NODE_MAX 4096
#define RESTARTS_MAX 1000000
#define LEASE_MS_DEFAULT 15000
#define LEASE_MS_MIN 200
#define LEASE_MS_MAX 3600000
#define HEARTBEATS_PER_LEASE 5
#define RECONNECT_GRACE_MS_MAX 1000
#define OUTAGE_GRACE_MS_DEFAULT 300000
#define JOIN_TIMEOUT_MS_DEFAULT 600000
#define LAST_CALL_MS_DEFAULT 30000
#define SHUTDOWN_GRACE_MS_DEFAULT 30000
#define FAILURE_GRACE_MS_DEFAULT 5000
#define STOP_MARGIN_MS 30000      /* past the grace, a node that cannot stop is lost */
#define STORE_START_MS 30000      /* rank 0's node opens the store in this time */
#define CHECKPOINT_WAIT_MS 120000 /* a scale-up that waits for a checkpoint */
#define RESTART_BACKOFF_MS_DEFAULT 60000
#define RESTART_BACKOFF_FIRST_MS 1000 /* then twice it, again and again */
#define RESTARTS_AT_ONCE 2
#define CRASH_LOOP_MS 5000 /* an epoch that failed in this time is part of one */
#define QUARANTINE_DEFAULT 3
#define QUARANTINE_MAX 8
#define QUARANTINE_WINDOW_MS 600000
#define PASTS_MAX 64 /* nodes whose troubles are remembered */

/* the guard */
#define GUARD_END_MS 5000      /* from its last order to its end */
#define GUARD_LAST_MS 5000     /* past KILL it is ended itself, then left behind */
#define FENCE_LATE_MS 1000     /* who looks so late was asleep with its machine ... */
#define FENCE_PATIENCE_MS 5000 /* ... and hears from the rendezvous first */
#define FENCE_MARGIN_MS 1000   /* for the agent to end its workers itself */

/* the control protocol */
#define FRAME_BODY_MAX 16384
#define FRAME_BODY_HELLO_MAX 512
#define JSON_DEPTH_MAX 8
#define JSON_MEMBERS_MAX 64 /* of one object, unknown ones included */
#define CONTROL_CONNS_MAX 40000
#define CONTROL_CONNS_UNKNOWN_MAX 16384 /* of them, those that have not said hello */
#define CONTROL_OUT_MAX (4u << 20)
#define CONTROL_UNSENT_MAX (64u << 10) /* of that, in the kernel */
#define VISITOR_OUT_WAIT (64u << 10)   /* while more waits, no request is answered */
#define VISITORS_OUT_MAX (64u << 20)   /* for all that are not members together */
#define VISITOR_REQUESTS_PER_TURN 8
#define VISITORS_TURN_BYTES (256u << 10) /* of answers to all visitors in one turn */
#define VISITOR_REQUEST_COST 1024        /* in the same bytes, besides its answer */
#define HELLO_DEADLINE_MS 5000
#define FRAME_DEADLINE_MS 10000
#define SEND_DEADLINE_MS 30000 /* a peer that takes nothing of what is sent to it */
#define HANG_UP_MS 1000        /* for the last answer to arrive */
#define READ_SHARE_BYTES 8192  /* of one connection in one turn */
#define KEEPALIVE_S 60
#define ACCEPT_SHARE 64 /* connections in one turn */
#define ACCEPT_PAUSE_MS 100
#define DESCRIPTORS_RESERVED 32 /* not for connections: journal, log, store, loop */
#define LISTEN_BACKLOG 4096
#define RECONNECT_DELAY_MS_MIN 4
#define RECONNECT_DELAY_MS_MAX 5000
#define CONNECT_TIMEOUT_MS 5000
#define CONNECT_AGAIN_MS                                                               \
    100 /* beside one that is not answered, then after twice that */
#define CONNECT_TRIES_MAX 4
#define ADDRESSES_PER_NAME_MAX 8
#define ENTRY_DEADLINE_MS 10000 /* from HELLO to WELCOME, from JOIN to JOINED */

/* the agent */
#define WORKER_DRAIN_MS 2000  /* for the streams of a worker that has exited 0 */
#define FAILED_DRAIN_MS 100   /* of one that has failed: others wait for the news */
#define LOG_TAIL_BYTES 65536  /* of standard error, kept for the failure report */
#define LOG_READ_BYTES 262144 /* of one stream in one turn */
#define LOG_PIPE_BYTES 1048576
#define LOG_LINE_MAX 65536    /* a longer line may be cut on a shared console */
#define LOG_PARTIAL_MS 50     /* then a line without an end is shown all the same */
#define LOG_FLUSH_MS 1000     /* at the end */
#define LOG_LOSS_TOLD_MS 1000 /* after the first byte lost */
#define FOOT_AGAIN_MS 1000
#define LOG_FILE_QUEUE_MAX (1u << 20)
#define LOG_CONSOLE_QUEUE_MAX (4u << 20)
#define WRITER_BLOCK_BYTES 65536
#define WRITER_SPARES_MAX 16
#define WRITER_QUEUE_MAX (64u << 20) /* of all that one thread writes */
#define WRITER_SLOW_BYTES (1u << 20) /* less than this in this time is */
#define WRITER_SLOW_MS 500           /* too slow to wait for */
#define WRITER_RETRY_MS 100          /* after a full disk */
#define HANG_TIMEOUT_MS_MAX 100000000
#define HANG_LOOK_MS 1000  /* between two looks at the status pages */
#define HANG_STALL_MS 2500 /* a longer gap counts as one of those */
#define HANG_AUTO_STEPS 5  /* before --hang-timeout auto judges anybody */
#define HANG_AUTO_MS_MIN 30000
#define HANG_AUTO_LONG_MS_MIN 600000 /* loading, evaluating, writing a checkpoint */
#define HANG_RANKS_TOLD 64           /* of one node; more would flood the events */
#define LAG_SAMPLES_MIN 60
#define CHECKPOINT_LOOK_MS 20   /* while workers are asked for one */
#define GPUS_PER_NODE_MAX 64    /* that are looked after */
#define GPU_LOOK_MS 1000        /* at least, between two looks */
#define GPU_SILENT_MS 5000      /* a longer look is a driver that hangs */
#define GPU_FIRST_MS 60000      /* the first one may wake up every GPU */
#define GPU_XIDS_KEPT 8         /* of one GPU and epoch, each told once */
#define GPU_XID_BEFORE_MS 30000 /* a failure, to be named in its report */
#define PREFLIGHT_MEMORY_FREE_PERCENT 80

/* the daemon */
#define JOBS_MAX 4096
#define EVENTS_KEPT 1024
#define NOTES_PER_EPOCH_MAX 512 /* remarks of a job's nodes */
#define STATUS_PER_PAGE 256
#define MEMBERS_PER_PAGE 128
#define JOURNAL_RECORD_MAX 65536
#define JOURNAL_BATCH_MAX (64u << 20)
#define JOURNAL_SNAPSHOT_BYTES (16u << 20)
#define JOURNAL_RESERVE_BYTES (1u << 20)

/* the store (the keys and values are PyTorch's own limits) */
#define STORE_KEY_MAX 8192
#define STORE_VALUE_MAX (8u << 20)
#define STORE_KEYS_PER_OP_MAX (128u * 1024)
#define STORE_KEYS_MAX (4u << 20)
#define STORE_BYTES_MAX (1ull << 30)
#define STORE_WAITERS_MAX (4u << 20)
#define STORE_CONNS_MAX 65536
#define STORE_REQUEST_MAX (256u << 20)
#define STORE_HELD_MAX (512u << 20) /* all requests that have come in part */
#define STORE_OUT_MAX (64u << 20)
#define STORE_HELLO_DEADLINE_MS 5000

#endif
