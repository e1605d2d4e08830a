/* SPDX-License-Identifier: MIT */
#include "tests/worlds/replica_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"

struct member member[COUNT];
struct parcel *parcels;
uint64_t world_ms, chance;
unsigned lost_in_100, delay_max;
char lasting[65536];
size_t lasting_size;
size_t compact_size;
unsigned snapshots_delivered;

unsigned below(unsigned limit)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(chance >> 33) % limit;
}

static void on_send(void *arg, uint64_t to, const char *address, const void *data,
                    size_t size)
{
    struct member *m = arg;
    struct parcel *p, **at = &parcels;

    if (*address)
        ck_assert_uint_eq(strtoull(address, NULL, 10), to);
    if (below(100) < lost_in_100)
        return;
    p = xcalloc(1, sizeof(*p));
    *p = (struct parcel){ .from = m->id, .to = to, .size = size };
    p->at = world_ms + 1 + below(delay_max) + m->slow;
    p->data = xmemdup(data, size);
    while (*at)
        at = &(*at)->next;
    *at = p;
}

static void on_changed(void *arg)
{
}

static void on_compact(void *arg, const void *records, size_t size)
{
    size_t from = compact_size && size > compact_size ? size - compact_size : 0;

    replica_keep_compact(((struct member *)arg)->replica,
                         (const uint8_t *)records + from, size - from);
}

int create_with_disk(unsigned i, bool founds, struct err *e)
{
    char address[16];
    struct replica_config config = { .id = 100 + i,
                                     .disk = member[i].disk
                                                 ? memdisk_disk(member[i].disk)
                                                 : NULL,
                                     .owner = address,
                                     .address = address,
                                     .founds = founds,
                                     .election_ms = ELECTION_MS,
                                     .seed = chance + i,
                                     .compact_after = COMPACT_AFTER,
                                     .compact = on_compact,
                                     .send = on_send,
                                     .changed = on_changed,
                                     .arg = &member[i] };

    snprintf(address, sizeof(address), "%u", 100 + i);
    member[i].id = config.id;
    member[i].replica = replica_create(&config, world_ms, e);
    return member[i].replica ? 0 : -1;
}

void create(unsigned i, bool founds)
{
    struct err e;

    ck_assert_msg(create_with_disk(i, founds, &e) == 0, "%s", e.text);
}

void destroy(unsigned i)
{
    replica_destroy(member[i].replica);
    member[i].replica = NULL;
}

/* After the id and the address of its sender. */
static bool is_snapshot(const struct parcel *p)
{
    return p->data[34 + p->data[32]] == 5;
}

void deliver(struct parcel *p)
{
    struct member *from = &member[p->from - 100], *to = &member[p->to - 100];

    if (to->replica && !from->cut && !from->mute && !to->cut) {
        snapshots_delivered += is_snapshot(p);
        replica_receive(to->replica, p->data, p->size, world_ms);
    }
    free(p->data);
    free(p);
}

/* Whoever may speak has all that has ever lasted. */
void check_speakers(void)
{
    unsigned speakers = 0;

    for (unsigned i = 0; i < COUNT; i++) {
        const uint8_t *records;
        size_t size;

        if (!member[i].replica || !replica_is_settled(member[i].replica, world_ms))
            continue;
        speakers++;
        records = replica_records(member[i].replica, &size);
        ck_assert(compact_size || size >= lasting_size);
        if (size == 0 || compact_size)
            continue;
        ck_assert_int_eq(memcmp(records, lasting, lasting_size), 0);
        ck_assert_uint_lt(size, sizeof(lasting));
        memcpy(lasting, records, size);
        lasting_size = size;
    }
    ck_assert_uint_le(speakers, 1);
}

void step(void)
{
    struct parcel **at = &parcels;

    world_ms++;
    while (*at) {
        struct parcel *p = *at;

        if (p->at > world_ms) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        deliver(p);
        at = &parcels;
    }
    for (unsigned i = 0; i < COUNT; i++)
        if (member[i].replica && world_ms >= replica_next_tick(member[i].replica))
            replica_tick(member[i].replica, world_ms);
    check_speakers();
}

struct member *leader(void)
{
    for (unsigned i = 0; i < COUNT; i++)
        if (member[i].replica && replica_is_settled(member[i].replica, world_ms))
            return &member[i];
    return NULL;
}

/* Until a leader may speak, at most ms. */
struct member *wait_for_leader(unsigned ms)
{
    while (ms-- > 0 && !leader())
        step();
    return leader();
}

void propose(struct member *m, const char *text)
{
    replica_propose(m->replica, text, strlen(text), world_ms);
}

bool all_vote(unsigned n)
{
    struct replica_member m;

    for (unsigned i = 0; i < n; i++) {
        if (replica_count(member[i].replica) < n)
            return false;
        replica_show(member[i].replica, n - 1, &m);
        if (!m.votes)
            return false;
    }
    return true;
}

void add_voter(unsigned i)
{
    char address[16];

    snprintf(address, sizeof(address), "%u", 100 + i);
    create(i, false);
    for (unsigned k = 0; k < 100; k++, step())
        if (replica_add(member[0].replica, 100 + i, address, world_ms) == 0)
            break;
    for (unsigned k = 0; k < 1000; k++, step())
        if (replica_count(member[0].replica) == i + 1 &&
            replica_set_vote(member[0].replica, 100 + i, true, world_ms) == 0)
            break;
    for (unsigned k = 0; k < 3000 && !all_vote(i + 1); k++)
        step();
    ck_assert(all_vote(i + 1));
}

/* The first one leads, and all `n` vote. */
void make_voters(unsigned n)
{
    create(0, true);
    for (unsigned i = 1; i < n; i++)
        add_voter(i);
    for (unsigned i = 0; i < 10; i++) /* until all know that the list lasts */
        step();
}

void replicas_setup(void)
{
    memset(member, 0, sizeof(member));
    world_ms = 1000;
    chance = 1;
    lost_in_100 = 0;
    delay_max = 2;
    lasting_size = compact_size = 0;
    snapshots_delivered = 0;
}

void replicas_teardown(void)
{
    struct parcel *p;

    for (unsigned i = 0; i < COUNT; i++) {
        destroy(i);
        memdisk_destroy(member[i].disk);
    }
    while ((p = parcels)) {
        parcels = p->next;
        free(p->data);
        free(p);
    }
}
