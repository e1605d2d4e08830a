/* SPDX-License-Identifier: MIT */
#pragma once

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;
struct log_file_reads;

/* The first line of a file that follows another one of the same stream: how much of the
 * stream came before, and the file's name. */
#define LOG_NEXT_FILE_LINE                                                             \
    "[crun: %" PRIu64 " bytes came before: the last of them are in %s.1]\n"

/* A file with a part of a stream. */
struct log_part {
    uint64_t inode; /* 0: there is none */
    uint64_t start; /* the first byte of the stream in it */
    uint64_t shift; /* offset in the stream less offset in the file */
};

/* Where a stream is: in its file, and before that in file.1, if it still is one. */
struct log_parts {
    uint64_t written; /* bytes of the stream */
    uint64_t lost;    /* of which no mark in a file tells; why: an errno, 0: too slow */
    int lost_errno;
    struct log_part part[2];
};

/* Of an open file to whose end the stream is written, from that offset on. */
struct log_part log_part_of(int fd, uint64_t start);

/*
 * Reads parts of log files on a thread of its own, because a file server may not
 * answer for long: one list of reads at a time.
 */
struct log_file_read {
    char *path; /* allocated; freed with the list, as the data */
    struct log_parts parts;
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
