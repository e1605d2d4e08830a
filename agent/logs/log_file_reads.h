/* SPDX-License-Identifier: MIT */
#ifndef AGENT_LOGS_LOG_FILE_READS_H
#define AGENT_LOGS_LOG_FILE_READS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;
struct log_file_reads;

/* Where a stream is in its file. */
struct log_place {
    uint64_t written; /* bytes of the stream */
    uint64_t lost; /* of which no mark in the file tells; why: an errno, 0: too slow */
    int lost_errno;
    uint64_t inode;
    uint64_t start; /* the first byte of the stream in it */
    uint64_t shift; /* offset in the stream less offset in the file */
};

/* Of an open file to whose end a stream is written. */
struct log_place log_place_of(int fd);

/*
 * Reads parts of log files on a thread of its own, because a file server may not
 * answer for long: one list of reads at a time.
 */
struct log_file_read {
    char *path; /* allocated; freed with the list, as the data */
    struct log_place place;
    uint64_t offset; /* of the stream; changed if lines are wanted, or it is gone */
    uint32_t lines;  /* begin so many lines before the end; 0: at the offset */
    char *data;
    size_t size; /* the most that is wanted, then how much it is */
    int errnum;  /* why it could not be read */
};

/* done: called on the loop; the list is valid during the call. */
struct log_file_reads *
log_file_reads_create(struct loop *loop,
                      void (*done)(void *arg, struct log_file_read *list, size_t count),
                      void *arg);
/* Does not wait for a read under way. NULL is fine. */
void log_file_reads_destroy(struct log_file_reads *r);

/* Takes the list over; not while it reads another one. False: no thread can be started.
 */
bool log_file_reads_start(struct log_file_reads *r, struct log_file_read *list,
                          size_t count);

#endif
