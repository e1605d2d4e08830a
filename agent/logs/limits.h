/* SPDX-License-Identifier: MIT */
#pragma once

/* The output of workers and the threads that write it. */
#define LOG_TAIL_BYTES                                                                 \
    65536 /* of one stream, at most; kept for reports and questions */
#define KEPT_OUTPUT_BYTES (8u << 20)     /* of standard output, for those who ask */
#define LOG_ANSWER_BYTES 131072          /* of all ranks of a question */
#define LOG_ANSWERS_WAITING_MAX 64       /* questions that wait for output */
#define LOG_ANSWER_NEWS_MS 5             /* from the first new byte to the answer */
#define LOG_SETTLE_MS 200                /* for what is on its way to a file */
#define LOG_FOLLOWER_MS 2000             /* from an answer to the next question */
#define LOG_SHOWN_MS 5000                /* the end waits so long for followers */
#define LOG_TAIL_SEARCH_BYTES (1u << 20) /* of a file, for the beginning of a line */
#define LOG_READ_BYTES 262144            /* of one stream in one turn of the loop */
#define LOG_PIPE_BYTES 1048576
#define LOG_PIPE_DEFAULT_BYTES 65536
#define LOG_FILTER_LINE_MAX 65536       /* a longer line is filtered in parts */
#define LOG_CONSOLE_LINE_MAX (1u << 20) /* a longer line may be cut if others write */
#define LOG_PARTIAL_MS 50               /* then a line without an end is shown too */
#define LOG_FLUSH_MS 1000               /* at the end, without progress: give up */
#define LOG_FLUSH_MAX_MS 10000          /* to write the rest at the end */
#define LOG_LOSS_REPORT_MS 100          /* after the first byte lost */
#define LOG_FILE_QUEUE_MAX (1u << 20)
#define LOG_CONSOLE_QUEUE_MAX (4u << 20)
#define WRITER_BLOCK_BYTES 65536
#define WRITER_PART_BYTES 16384      /* in one call: progress of a slow reader shows */
#define WRITER_QUEUE_MAX (64u << 20) /* of all outlets of one thread */
#define WRITER_SLOW_BYTES (1u << 20) /* fewer bytes than this ... */
#define WRITER_SLOW_MS 500           /* ... in this time: too slow to wait for */
#define WRITER_RETRY_MS 100          /* after a full disk */
