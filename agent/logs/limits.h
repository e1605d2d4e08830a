/* SPDX-License-Identifier: MIT */
#ifndef AGENT_LOGS_LIMITS_H
#define AGENT_LOGS_LIMITS_H

/* What workers write, and the thread that writes it to files. */
#define LOG_TAIL_BYTES 65536  /* of standard error, kept for the failure report */
#define LOG_READ_BYTES 262144 /* of one stream in one turn */
#define LOG_PIPE_BYTES 1048576
#define LOG_LINE_MAX 65536    /* a longer line may be cut on a shared console */
#define LOG_PARTIAL_MS 50     /* then a line without an end is shown all the same */
#define LOG_FLUSH_MS 1000     /* at the end */
#define LOG_LOSS_TOLD_MS 1000 /* after the first byte lost */
#define LOG_FILE_QUEUE_MAX (1u << 20)
#define LOG_CONSOLE_QUEUE_MAX (4u << 20)
#define WRITER_BLOCK_BYTES 65536
#define WRITER_SPARES_MAX 16
#define WRITER_QUEUE_MAX (64u << 20) /* of all that one thread writes */
#define WRITER_SLOW_BYTES (1u << 20) /* less than this in this time is */
#define WRITER_SLOW_MS 500           /* too slow to wait for */
#define WRITER_RETRY_MS 100          /* after a full disk */

#endif
