/* SPDX-License-Identifier: MIT */
/*
 * A journal found on the disk. The first byte says how the rest is used:
 *
 *   as a file      any bytes whatever
 *   as batches     whole batches with these bytes as records, at given lengths
 *   as mutations   of a good journal: what is given must be a prefix of what was in it,
 *                  and no shorter than the batches before the first byte touched
 *
 * Whatever opens must take a record and give it back.
 */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/job/records/journal.h"
#include "rendezvous/job/records/journal_format.h"
#include "tests/fakes/disk/memdisk.h"

#define SAMPLE_BATCHES 5
#define TYPE_OURS 7

enum use { AS_FILE, AS_BATCHES, AS_MUTATIONS, USE_COUNT };

struct journal_input {
    const uint8_t *next;
    size_t left;
};

/* A file under construction. */
struct journal_file {
    uint8_t data[1 << 17];
    size_t size;
    uint32_t file_check, check;
    uint64_t number;
};

struct journal_reader {
    unsigned count;
    bool ordered; /* record i must be the one byte i */
    bool ours;    /* the last was ours */
};

static struct journal_file file;

static unsigned take_bytes(struct journal_input *in)
{
    unsigned byte = in->left > 0 ? *in->next : 0;

    in->next += in->left > 0;
    in->left -= in->left > 0;
    return byte;
}

static void require(bool holds)
{
    if (!holds)
        abort();
}

static int read_record(void *arg, unsigned type, const void *data, size_t size,
                       struct err *e)
{
    struct journal_reader *r = arg;
    volatile uint8_t sum = 0;

    for (size_t i = 0; i < size; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)data)[i]);
    if (r->ordered && type != TYPE_OURS)
        require(type == 1 && size == 1 && *(const uint8_t *)data == r->count);
    r->ours = type == TYPE_OURS && size == 4 && memcmp(data, "ours", 4) == 0;
    r->count++;
    return 0;
}

static void file_begin(void)
{
    struct id128 id = { "a file's own id" };

    file.size = JOURNAL_FILE_HEADER_SIZE;
    file.number = 0;
    file.file_check = file.check = journal_put_file_header(&id, file.data);
}

static void file_add_batch(const void *records, size_t length)
{
    struct journal_batch_header h = { .length = (uint32_t)length,
                                      .number = ++file.number,
                                      .previous = file.check,
                                      .body = journal_checksum(records, length) };

    if (file.size + JOURNAL_BATCH_HEADER_SIZE + length > sizeof(file.data))
        return;
    journal_put_batch_header(&h, file.file_check, file.data + file.size);
    file.size += JOURNAL_BATCH_HEADER_SIZE;
    memcpy(file.data + file.size, records, length);
    file.size += length;
    file.check = h.check;
}

/* Batch i holds i records; ends[i] is what the file's size is after it. */
static void file_sample(size_t ends[SAMPLE_BATCHES + 1])
{
    uint8_t record[] = { 1, 0, 1, 0, 0, 0, 0 };
    uint8_t records[SAMPLE_BATCHES * sizeof(record)];

    file_begin();
    ends[0] = file.size;
    for (size_t i = 1; i <= SAMPLE_BATCHES; i++) {
        for (size_t k = 0; k < i; k++, record[6]++)
            memcpy(records + k * sizeof(record), record, sizeof(record));
        file_add_batch(records, i * sizeof(record));
        ends[i] = file.size;
    }
}

static void make_batches(struct journal_input *in)
{
    file_begin();
    while (in->left > 0) {
        size_t length = take_bytes(in) | take_bytes(in) << 8;

        length = length < in->left ? length : in->left;
        file_add_batch(in->next, length);
        in->next += length;
        in->left -= length;
    }
}

/* Returns the first byte that is not as it was. */
static size_t mutate(struct journal_input *in)
{
    size_t first = file.size;

    while (in->left > 0) {
        unsigned how = take_bytes(in);
        size_t at = (take_bytes(in) | take_bytes(in) << 8) % (file.size + 1);
        uint8_t byte = (uint8_t)take_bytes(in);

        if (how % 4 == 0 && at < file.size) {
            file.data[at] = byte;
        } else if (how % 4 == 1 && file.size < sizeof(file.data)) {
            memmove(file.data + at + 1, file.data + at, file.size++ - at);
            file.data[at] = byte;
        } else if (how % 4 == 2) {
            file.size = at;
        } else if (file.size > 0 && at < file.size) {
            size_t from = byte * 3u % file.size;
            size_t room = file.size - (at > from ? at : from);

            memmove(file.data + at, file.data + from, how < room ? how : room);
        }
        first = at < first ? at : first;
    }
    return first;
}

/* Returns how many records were given, or -1 where the journal was refused. */
static int open_and_count(struct disk *d, bool ordered, bool *ours)
{
    struct journal_reader r = { .ordered = ordered };
    struct err e;
    uint64_t cut;
    struct journal *j = journal_open(d, read_record, &r, &cut, &e);

    *ours = r.ours;
    if (!j)
        return -1;
    journal_append(j, TYPE_OURS, "ours", 4);
    require(journal_commit(j, &e) == 0);
    journal_close(j);
    return (int)r.count;
}

static void check_file(const void *data, size_t size, bool ordered, unsigned at_least)
{
    struct memdisk *m = memdisk_create();
    struct disk *d = memdisk_disk(m);
    bool ours;
    int count;

    memdisk_put(m, JOURNAL_NAME, data, size);
    count = open_and_count(d, ordered, &ours);
    if (count >= 0) {
        require((unsigned)count >= at_least);
        require(open_and_count(d, ordered, &ours) == count + 1 && ours);
    }
    memdisk_destroy(m);
}

static void check_mutations(struct journal_input *in)
{
    size_t ends[SAMPLE_BATCHES + 1], first;
    unsigned at_least = 0;

    file_sample(ends);
    first = mutate(in);
    for (unsigned i = 1; i <= SAMPLE_BATCHES && ends[i] <= first; i++)
        at_least += i;
    check_file(file.data, file.size, true, at_least);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct journal_input in = { data, size };

    switch ((enum use)(take_bytes(&in) % USE_COUNT)) {
    case AS_FILE:
        check_file(in.next, in.left, false, 0);
        break;
    case AS_BATCHES:
        make_batches(&in);
        check_file(file.data, file.size, false, 0);
        break;
    default:
        check_mutations(&in);
        break;
    }
    return 0;
}
