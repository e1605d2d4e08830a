/* SPDX-License-Identifier: MIT */
#include "worker-lib/engine/flight_recorder.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rendezvous/common/base/fd.h"
#include "worker-lib/core/profiler_ranges.h"

#define LINE_SIZE 320
#define RUNNING UINT32_MAX

/* Fields are written one by one: a reader may see an entry that is half overwritten by
 * the next operation. */
struct entry_op {
    _Atomic uint64_t count;
    _Atomic uint32_t kind, type, op;
    _Atomic int32_t peer;
};

struct entry {
    _Atomic uint64_t sequence, begin_us, end_us;
    _Atomic uint64_t range; /* of profiler_ranges.h */
    _Atomic uint32_t status, members;
    struct entry_op op;
    struct entry_op member[OP_MEMBERS_SHOWN]; /* of a group */
};

struct flight_recorder {
    unsigned rank;
    const char *name;
    const unsigned *world_rank;
    char *where;              /* or NULL */
    struct op shown;          /* described at `where` */
    size_t described;         /* bytes of that, before the sequence number */
    char first;               /* of them */
    _Atomic uint64_t entries; /* begun, ever */
    struct entry entry[FLIGHT_RECORDER_KEPT];
};

struct flight_recorder *flight_recorder_create(unsigned rank, const char *name,
                                               const unsigned *world_rank)
{
    struct flight_recorder *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    f->rank = rank;
    f->name = name;
    f->world_rank = world_rank;
    return f;
}

void flight_recorder_destroy(struct flight_recorder *f)
{
    free(f);
}

#define put(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)
#define get(field) atomic_load_explicit(&(field), memory_order_relaxed)

static void put_op(struct entry_op *t, const struct op *op)
{
    put(t->count, op->count);
    put(t->kind, op->kind);
    put(t->type, op->type);
    put(t->op, op->op);
    put(t->peer, op->peer);
}

static struct op get_op(const struct entry_op *t)
{
    return (struct op){ .kind = (enum op_kind)get(t->kind),
                        .type = (crun_dtype)get(t->type),
                        .op = (crun_op)get(t->op),
                        .peer = get(t->peer),
                        .count = get(t->count) };
}

/* -- where this rank is ------------------------------------------------------------ */

void flight_recorder_show(struct flight_recorder *f, char *where)
{
    f->where = where;
    f->described = 0;
}

static bool is_shown(const struct flight_recorder *f, const struct op *op)
{
    return f->described && op->kind != OP_GROUP && f->shown.kind == op->kind &&
           f->shown.count == op->count && f->shown.type == op->type &&
           f->shown.op == op->op && f->shown.peer == op->peer;
}

static void put_number(char *at, uint64_t number)
{
    char digits[20];
    size_t count = 0;

    do
        digits[count++] = (char)('0' + number % 10);
    while ((number /= 10));
    while (count)
        *at++ = digits[--count];
    *at = '\0';
}

/* Most operations are like the one before: then only the number is written. */
static void show_op(struct flight_recorder *f, const struct op *op)
{
    char text[FLIGHT_RECORDER_WHERE_BYTES - 24];

    if (!is_shown(f, op)) {
        f->described = (size_t)snprintf(
            f->where, FLIGHT_RECORDER_WHERE_BYTES, "%s #",
            op_describe(op, f->world_rank, text, sizeof(text)));
        f->first = f->where[0];
        f->shown = *op;
    }
    put_number(f->where + f->described, op->sequence);
    f->where[0] = f->first;
}

/* -- recording --------------------------------------------------------------------- */

static void begin_range(const struct flight_recorder *f, struct entry *t,
                        const struct op *op)
{
    char text[FLIGHT_RECORDER_WHERE_BYTES];

    op_describe(op, f->world_rank, text, sizeof(text));
    put(t->range, range_begin("%s #%" PRIu64, text, op->sequence));
}

uint64_t flight_recorder_begin(struct flight_recorder *f, const struct op *op,
                               uint64_t now_us)
{
    uint64_t n = get(f->entries);
    struct entry *t = &f->entry[n % FLIGHT_RECORDER_KEPT];

    put(t->sequence, op->sequence);
    put(t->begin_us, now_us);
    put(t->end_us, 0);
    put_op(&t->op, op);
    put(t->members, op_members(op));
    for (unsigned i = 0;
         op->kind == OP_GROUP && i < op_members(op) && i < OP_MEMBERS_SHOWN; i++)
        put_op(&t->member[i], &op->group->member[i]);
    put(t->status, RUNNING);
    atomic_store_explicit(&f->entries, n + 1, memory_order_release);
    if (f->where)
        show_op(f, op);
    if (ranges_are_on())
        begin_range(f, t, op);
    return n;
}

void flight_recorder_end(struct flight_recorder *f, uint64_t entry, crun_status s,
                         uint64_t now_us)
{
    struct entry *t = &f->entry[entry % FLIGHT_RECORDER_KEPT];

    if (f->where)
        f->where[0] = '\0';
    if (get(f->entries) - entry > FLIGHT_RECORDER_KEPT)
        return; /* another operation uses the entry by now */
    put(t->end_us, now_us);
    put(t->status, s);
    range_end(get(t->range));
    put(t->range, 0);
}

/* "12.3 s  #17 all_reduce 1048576 x f32 sum  timeout 1000234 us" */
static int print_entry(const struct entry *t, const unsigned *world_rank, char *line,
                       size_t size)
{
    struct op op = get_op(&t->op), member[OP_MEMBERS_SHOWN];
    struct op_group group = { .count = get(t->members), .member = member };
    uint32_t status = get(t->status);
    uint64_t begin = get(t->begin_us), end = get(t->end_us);
    char ended[60] = "under way", what[LINE_SIZE - 100];

    for (unsigned i = 0; i < OP_MEMBERS_SHOWN; i++)
        member[i] = get_op(&t->member[i]);
    op.group = &group;

    if (status != RUNNING)
        snprintf(ended, sizeof(ended), "%s %" PRIu64 " us", crun_status_name(status),
                 end - begin);
    return snprintf(line, size, "%.6f s  #%" PRIu64 " %s  %s\n", (double)begin / 1e6,
                    get(t->sequence), op_describe(&op, world_rank, what, sizeof(what)),
                    ended);
}

size_t flight_recorder_print(const struct flight_recorder *f, char *text, size_t size)
{
    uint64_t n = atomic_load_explicit(&f->entries, memory_order_acquire);
    char line[LINE_SIZE];
    size_t used = 0;

    if (size > 0)
        text[0] = '\0';
    for (uint64_t i = n > FLIGHT_RECORDER_KEPT ? n - FLIGHT_RECORDER_KEPT : 0; i < n;
         i++) {
        int length = print_entry(&f->entry[i % FLIGHT_RECORDER_KEPT], f->world_rank,
                                 line, sizeof(line));

        if (used + 1 < size)
            snprintf(text + used, size - used, "%s", line);
        used += (size_t)length;
    }
    return used;
}

void flight_recorder_dump(const struct flight_recorder *f, const char *directory,
                          const char *reason)
{
    size_t size = LINE_SIZE * FLIGHT_RECORDER_KEPT;
    char path[1024], *text = malloc(size);
    int fd;

    if (!text)
        return;
    flight_recorder_print(f, text, size);
    snprintf(path, sizeof(path), "%s/flight-rank-%u%s.txt", directory, f->rank,
             f->name);
    fd = fd_create_file(path, O_TRUNC, 0644);
    if (fd >= 0) {
        dprintf(fd, "rank %u: %s\n%s", f->rank, reason, text);
        close(fd);
    }
    free(text);
}
