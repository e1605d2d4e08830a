/* SPDX-License-Identifier: MIT */
/* The headers of the journal's file and of its batches, to and from bytes. */
#include "rendezvous/job/records/journal_format.h"

#include <zlib.h>

#include "rendezvous/common/base/wire.h"

#define FILE_MAGIC 0x316c6e6a6e757263ull /* "crunjnl1" */
#define CHECK_SIZE 4

uint32_t journal_checksum(const void *data, size_t size)
{
    return (uint32_t)crc32_z(0, data, size);
}

uint32_t journal_put_file_header(const struct id128 *id,
                                 uint8_t out[JOURNAL_FILE_HEADER_SIZE])
{
    struct wire_out w = { .start = out, .size = JOURNAL_FILE_HEADER_SIZE };
    uint32_t check;

    wire_put_u64(&w, FILE_MAGIC);
    wire_put_u32(&w, JOURNAL_VERSION);
    wire_put_bytes(&w, id->byte, sizeof(id->byte));
    check = journal_checksum(out, w.used);
    wire_put_u32(&w, check);
    return check;
}

int journal_get_file_header(const uint8_t in[JOURNAL_FILE_HEADER_SIZE],
                            uint32_t *file_check, struct err *e)
{
    struct wire_in r = { .next = in, .left = JOURNAL_FILE_HEADER_SIZE };
    uint64_t magic = wire_get_u64(&r);
    uint32_t version = wire_get_u32(&r);
    struct id128 id;

    wire_get_bytes(&r, id.byte, sizeof(id.byte));
    *file_check = wire_get_u32(&r);
    if (magic != FILE_MAGIC)
        return err_set(e, "journal: not a journal of crund");
    if (*file_check != journal_checksum(in, JOURNAL_FILE_HEADER_SIZE - CHECK_SIZE))
        return err_set(e, "journal: damaged at byte 0 (the file's header)");
    if (version != JOURNAL_VERSION)
        return err_set(e, "journal: has format %u; this crund reads format %u", version,
                       JOURNAL_VERSION);
    return 0;
}

static uint32_t batch_check(uint32_t file_check, const uint8_t *header)
{
    return (uint32_t)crc32_z(file_check, header,
                             JOURNAL_BATCH_HEADER_SIZE - CHECK_SIZE);
}

void journal_put_batch_header(struct journal_batch_header *h, uint32_t file_check,
                              uint8_t out[JOURNAL_BATCH_HEADER_SIZE])
{
    struct wire_out w = { .start = out, .size = JOURNAL_BATCH_HEADER_SIZE };

    wire_put_u32(&w, JOURNAL_BATCH_MAGIC);
    wire_put_u32(&w, h->length);
    wire_put_u64(&w, h->number);
    wire_put_u32(&w, h->previous);
    wire_put_u32(&w, h->body);
    h->check = batch_check(file_check, out);
    wire_put_u32(&w, h->check);
}

bool journal_get_batch_header(const uint8_t in[JOURNAL_BATCH_HEADER_SIZE],
                              uint32_t file_check, struct journal_batch_header *h)
{
    struct wire_in r = { .next = in, .left = JOURNAL_BATCH_HEADER_SIZE };

    if (wire_get_u32(&r) != JOURNAL_BATCH_MAGIC)
        return false;
    h->length = wire_get_u32(&r);
    h->number = wire_get_u64(&r);
    h->previous = wire_get_u32(&r);
    h->body = wire_get_u32(&r);
    h->check = wire_get_u32(&r);
    return h->check == batch_check(file_check, in);
}
