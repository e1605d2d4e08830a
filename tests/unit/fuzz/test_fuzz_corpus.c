/* SPDX-License-Identifier: MIT */
/*
 * What the fuzzers begin with (tests/fuzz/corpus) is of today's formats: an input that
 * is refused at its first byte teaches them nothing. Runs in the root of the source.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/records/journal.h"
#include "rendezvous/job/records/journal_format.h"
#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/proto.h"
#include "rendezvous/wire/protocol/proto_fields.h"
#include "tests/fakes/disk/memdisk.h"
#include "tests/worlds/check_main.h"

#define CORPUS "tests/fuzz/corpus/"
#define JOURNAL CORPUS "fuzz_journal/file"
#define JOURNAL_RECORDS 6

static uint8_t input[1 << 16];

/* Returns its size. A NUL stands behind it. */
static size_t load(const char *path)
{
    FILE *f = fopen(path, "r");
    size_t size;

    ck_assert_msg(f, "%s cannot be read: no input, or not the root of the source",
                  path);
    size = fread(input, 1, sizeof(input) - 1, f);
    fclose(f);
    input[size] = '\0';
    return size;
}

/* Those of objects in it are not looked for. */
static void check_fields(const char *path, const struct proto_table *table)
{
    for (unsigned i = 0; i < table->count; i++) {
        char *name = xasprintf("\"%s\":", table->field[i].name);

        ck_assert_msg(strstr((char *)input + 1, name), "%s has no %s", path, name);
        free(name);
    }
}

TEST_LOOP(there_is_a_message_of_each_type, 0, MSG_TYPE_MAX)
{
    struct frame_header h = { .type = (uint16_t)_i };
    char *path;
    size_t size;
    struct msg m;
    struct err e;

    if (!proto_name((unsigned)_i))
        return;
    path = xasprintf(CORPUS "fuzz_proto/%s", proto_name((unsigned)_i));
    size = load(path);
    ck_assert_uint_gt(size, 1);
    ck_assert_uint_eq(input[0], (unsigned)_i);
    h.body_size = (uint32_t)size - 1;
    ck_assert_msg(proto_decode(&h, input + 1, &m, &e) == 0, "%s: %s", path, e.text);
    check_fields(path, &proto_messages[_i].body);
    free(path);
}

static int count_record(void *arg, unsigned type, const void *data, size_t size,
                        struct err *e)
{
    ++*(unsigned *)arg;
    return 0;
}

TEST(the_journal_is_a_whole_one)
{
    size_t size = load(JOURNAL);
    struct memdisk *m = memdisk_create();
    unsigned count = 0;
    uint64_t cut;
    struct err e;
    struct journal *j;

    ck_assert_uint_gt(size, 1);
    ck_assert_uint_eq(input[0], 0); /* it is a file */
    memdisk_put(m, JOURNAL_NAME, input + 1, size - 1);
    j = journal_open(memdisk_disk(m), count_record, &count, &cut, &e);
    ck_assert_msg(j, JOURNAL ": %s", e.text);
    ck_assert_uint_eq(cut, 0);
    ck_assert_uint_ge(count, JOURNAL_RECORDS);
    journal_close(j);
    memdisk_destroy(m);
}
