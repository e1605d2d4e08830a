/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/id128.h"
#include "rendezvous/job/records/journal.h"

/*
 * The format on disk, little-endian.
 *
 *   file    magic u64, version u32, id 16 bytes, check u32; then batches
 *   batch   magic u32, length u32, number u64, previous u32, body u32, check u32;
 *           then `length` bytes of records, whose checksum is `body`
 *   record  type u16, size u32, data
 *
 * The id of a file is random. The check of every batch header begins with that of the
 * file, so that a stale block of another file is not accepted; `previous` is the check
 * of the batch before (for batch 1, of the file), so that no batch can be missing or
 * out of order. A header can be verified without its records: a header after a broken
 * batch shows that the file did not end there.
 */
#define JOURNAL_NAME "journal"
#define JOURNAL_NEW_NAME "journal.new"
#define JOURNAL_VERSION 2u
#define JOURNAL_FILE_HEADER_SIZE 32
#define JOURNAL_BATCH_HEADER_SIZE 28
#define JOURNAL_BATCH_MAGIC 0x4a6e7263u
#define JOURNAL_RECORD_HEADER_SIZE 6

struct journal_batch_header {
    uint32_t length;
    uint64_t number;
    uint32_t previous;
    uint32_t body;
    uint32_t check;
};

uint32_t journal_checksum(const void *data, size_t size);

/* Returns the file's check. */
uint32_t journal_put_file_header(const struct id128 *id,
                                 uint8_t out[JOURNAL_FILE_HEADER_SIZE]);
int journal_get_file_header(const uint8_t in[JOURNAL_FILE_HEADER_SIZE],
                            uint32_t *file_check, struct err *e) MUST_CHECK;

/* Fills h->check. */
void journal_put_batch_header(struct journal_batch_header *h, uint32_t file_check,
                              uint8_t out[JOURNAL_BATCH_HEADER_SIZE]);
/* False where there is no batch header of this file. */
bool journal_get_batch_header(const uint8_t in[JOURNAL_BATCH_HEADER_SIZE],
                              uint32_t file_check, struct journal_batch_header *h);

/* How far a file was read: the end of its last whole batch. */
struct journal_extent {
    uint64_t end;
    uint64_t cut_bytes; /* after the end, not counting zeros at the very end */
    uint64_t number;    /* of the last batch */
    uint32_t check;     /* of the last batch, or of the file */
    uint32_t file_check;
};

/* Give every record of an open file to fn. See journal_open. */
int journal_load(struct disk *disk, int file, journal_record_fn *fn, void *arg,
                 struct journal_extent *extent, struct err *e) MUST_CHECK;
