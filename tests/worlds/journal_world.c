/* SPDX-License-Identifier: MIT */
#include "tests/worlds/journal_world.h"

#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"

struct memdisk *m;
struct err e;
uint64_t cut;
uint8_t big[JOURNAL_RECORD_MAX];

static size_t record_make(unsigned i, uint8_t data[64])
{
    size_t size = (i * 7) % 41;

    for (size_t k = 0; k < size; k++)
        data[k] = (uint8_t)(i * 31 + k);
    return size;
}

void append_record(struct journal *j, unsigned i)
{
    uint8_t data[64];
    size_t size = record_make(i, data);

    journal_append(j, i % 5, data, size);
}

/* Counts what it is given; anything out of its place is refused as "wrong". */
static int count_record(void *arg, unsigned type, const void *data, size_t size,
                        struct err *why)
{
    unsigned *count = arg;
    uint8_t want[64];

    if (type == TYPE_PADDING)
        return 0;
    if (type == TYPE_SNAPSHOT && size == sizeof(*count)) {
        memcpy(count, data, size);
        return 0;
    }
    if (type != *count % 5 || size != record_make(*count, want) ||
        memcmp(data, want, size) != 0)
        return err_set(why, "wrong record %u", *count);
    (*count)++;
    return 0;
}

void dump_count(void *arg, struct journal *j)
{
    journal_append(j, TYPE_SNAPSHOT, arg, sizeof(unsigned));
    for (int i = 0; i < 3; i++)
        journal_append(j, TYPE_PADDING, big, 700);
}

void setup(void)
{
    m = memdisk_create();
}

void teardown(void)
{
    memdisk_destroy(m);
}

struct journal *try_open(unsigned *count)
{
    *count = 0;
    e.text[0] = '\0';
    return journal_open(memdisk_disk(m), count_record, count, &cut, &e);
}

struct journal *must_open(unsigned *count)
{
    struct journal *j = try_open(count);

    ck_assert_msg(j != NULL, "%s", e.text);
    return j;
}

void must_commit(struct journal *j)
{
    ck_assert_msg(journal_commit(j, &e) == 0, "%s", e.text);
}

static void sample_mark(struct sample *s, int i, unsigned count)
{
    ck_assert_ptr_nonnull(memdisk_get(m, JOURNAL_NAME, &s->ends[i]));
    if (i > 0)
        s->ends[i] -= JOURNAL_BATCH_HEADER_SIZE; /* the mark */
    s->counts[i] = count;
}

uint8_t *copy_journal(size_t *size)
{
    const uint8_t *data = memdisk_get(m, JOURNAL_NAME, size);

    ck_assert_ptr_nonnull(data);
    return xmemdup(data, *size);
}

struct sample sample_make(void)
{
    struct sample s = { 0 };
    unsigned count;
    struct journal *j = must_open(&count);

    sample_mark(&s, 0, 0);
    for (int i = 1; i <= BATCHES; i++) {
        for (int k = 0; k < i; k++)
            append_record(j, count++);
        must_commit(j);
        sample_mark(&s, i, count);
    }
    journal_close(j);
    s.data = copy_journal(&s.size);
    s.size = s.ends[BATCHES];
    return s;
}

void expect_count(unsigned want)
{
    unsigned count;
    struct journal *j = must_open(&count);

    ck_assert_uint_eq(count, want);
    journal_close(j);
}
