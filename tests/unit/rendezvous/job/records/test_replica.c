/* SPDX-License-Identifier: MIT */
/*
 * Replicas in one process, with a network that delays, loses and cuts. What one of them
 * has called lasting is never forgotten, and of two only one may speak at a time.
 */
#include "rendezvous/job/records/replica.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"

#define COUNT 5
#define ELECTION_MS 200
#define COMPACT_AFTER 20

struct parcel {
    uint64_t from, to, at;
    uint8_t *data;
    size_t size;
    struct parcel *next;
};

struct member {
    uint64_t id;
    struct replica *replica; /* NULL: dead, or not there yet */
    bool cut;
    bool mute;     /* what it sends is lost */
    unsigned slow; /* what it sends takes so much longer */
};

static struct member member[COUNT];
static struct parcel *parcels;
static uint64_t now, chance;
static unsigned lost_in_100, delay_max;
static char lasting[65536]; /* what a leader has called lasting, in order */
static size_t lasting_size;
static size_t compact_size; /* the last bytes, which supersede all others; 0: none do */
static unsigned snapshots_delivered;

static unsigned below(unsigned limit)
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
    p->at = now + 1 + below(delay_max) + m->slow;
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

static void create(unsigned i, bool founds)
{
    char address[16];
    struct replica_config config = { .id = 100 + i,
                                     .address = address,
                                     .founds = founds,
                                     .election_ms = ELECTION_MS,
                                     .seed = chance + i,
                                     .compact_after = COMPACT_AFTER,
                                     .compact = on_compact,
                                     .send = on_send,
                                     .changed = on_changed,
                                     .arg = &member[i] };
    struct err e;

    snprintf(address, sizeof(address), "%u", 100 + i);
    member[i].id = config.id;
    member[i].replica = replica_create(&config, now, &e);
    ck_assert_msg(member[i].replica != NULL, "%s", e.text);
}

static void destroy(unsigned i)
{
    replica_destroy(member[i].replica);
    member[i].replica = NULL;
}

/* After the id and the address of its sender. */
static bool is_snapshot(const struct parcel *p)
{
    return p->data[34 + p->data[32]] == 5;
}

static void deliver(struct parcel *p)
{
    struct member *from = &member[p->from - 100], *to = &member[p->to - 100];

    if (to->replica && !from->cut && !from->mute && !to->cut) {
        snapshots_delivered += is_snapshot(p);
        replica_receive(to->replica, p->data, p->size, now);
    }
    free(p->data);
    free(p);
}

/* Whoever may speak has all that has ever lasted. */
static void check_speakers(void)
{
    unsigned speakers = 0;

    for (unsigned i = 0; i < COUNT; i++) {
        const uint8_t *records;
        size_t size;

        if (!member[i].replica || !replica_is_settled(member[i].replica, now))
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

static void step(void)
{
    struct parcel **at = &parcels;

    now++;
    while (*at) {
        struct parcel *p = *at;

        if (p->at > now) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        deliver(p);
        at = &parcels;
    }
    for (unsigned i = 0; i < COUNT; i++)
        if (member[i].replica && now >= replica_next_tick(member[i].replica))
            replica_tick(member[i].replica, now);
    check_speakers();
}

static struct member *leader(void)
{
    for (unsigned i = 0; i < COUNT; i++)
        if (member[i].replica && replica_is_settled(member[i].replica, now))
            return &member[i];
    return NULL;
}

/* Until a leader may speak, at most ms. */
static struct member *wait_for_leader(unsigned ms)
{
    while (ms-- > 0 && !leader())
        step();
    return leader();
}

static void propose(struct member *m, const char *text)
{
    replica_propose(m->replica, text, strlen(text), now);
}

static bool all_vote(unsigned n)
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

static void add_voter(unsigned i)
{
    char address[16];

    snprintf(address, sizeof(address), "%u", 100 + i);
    create(i, false);
    for (unsigned k = 0; k < 100; k++, step())
        if (replica_add(member[0].replica, 100 + i, address, now) == 0)
            break;
    for (unsigned k = 0; k < 1000; k++, step())
        if (replica_count(member[0].replica) == i + 1 &&
            replica_set_vote(member[0].replica, 100 + i, true, now) == 0)
            break;
    for (unsigned k = 0; k < 3000 && !all_vote(i + 1); k++)
        step();
    ck_assert(all_vote(i + 1));
}

/* The first one leads, and all `n` vote. */
static void make_voters(unsigned n)
{
    create(0, true);
    for (unsigned i = 1; i < n; i++)
        add_voter(i);
    for (unsigned i = 0; i < 10; i++) /* until all know that the list lasts */
        step();
}

static void setup(void)
{
    memset(member, 0, sizeof(member));
    now = 1000;
    chance = 1;
    lost_in_100 = 0;
    delay_max = 2;
    lasting_size = compact_size = 0;
    snapshots_delivered = 0;
}

static void teardown(void)
{
    struct parcel *p;

    for (unsigned i = 0; i < COUNT; i++)
        destroy(i);
    while ((p = parcels)) {
        parcels = p->next;
        free(p->data);
        free(p);
    }
}

FIXTURE(setup, teardown);

/* A build without libraft has no replicas, and says so. */
static bool is_left_out(void)
{
    struct replica_config config = { .id = 1 };
    struct err e;

    if (replica_is_built())
        return false;
    ck_assert_ptr_null(replica_create(&config, now, &e));
    return true;
}

TEST(the_founder_leads_at_once_and_alone)
{
    const uint8_t *records;
    size_t size;

    if (is_left_out())
        return;
    create(0, true);
    replica_tick(member[0].replica, now);
    ck_assert(replica_is_settled(member[0].replica, now));
    propose(&member[0], "one");
    ck_assert(replica_is_settled(member[0].replica, now));
    records = replica_records(member[0].replica, &size);
    ck_assert_uint_eq(size, 3);
    ck_assert_int_eq(memcmp(records, "one", 3), 0);
}

TEST(nothing_lasts_before_a_majority_has_it)
{
    size_t size;

    if (is_left_out())
        return;
    make_voters(3);
    member[1].cut = member[2].cut = true;
    propose(&member[0], "one");
    ck_assert(!replica_is_settled(member[0].replica, now));
    member[1].cut = false;
    ck_assert(wait_for_leader(100) == &member[0]);
    replica_records(member[1].replica, &size);
    step();
    for (unsigned i = 0; i < 100; i++)
        step();
    replica_records(member[1].replica, &size);
    ck_assert_uint_eq(size, 3);
}

TEST(what_does_not_last_yet_is_no_silence)
{
    if (is_left_out())
        return;
    make_voters(3);
    propose(&member[0], "one");
    ck_assert(replica_is_heard(member[0].replica, now));
    member[0].cut = true;
    for (unsigned i = 0; i < ELECTION_MS; i++)
        step();
    ck_assert(!replica_is_heard(member[0].replica, now));
}

TEST(another_one_leads_on_with_all_that_lasted)
{
    uint64_t died;

    if (is_left_out())
        return;
    make_voters(3);
    propose(&member[0], "one");
    ck_assert(wait_for_leader(100) == &member[0]);
    propose(&member[0], "two");
    ck_assert(wait_for_leader(100) == &member[0]);
    destroy(0);
    died = now;
    ck_assert(wait_for_leader(5000) != NULL);
    ck_assert_uint_ge(now - died, ELECTION_MS / 2);
    ck_assert_uint_eq(lasting_size, 6);
    propose(leader(), "three");
    ck_assert(wait_for_leader(100) != NULL);
    ck_assert_uint_eq(lasting_size, 11);
}

TEST(a_leader_whose_process_is_gone_is_replaced_at_once)
{
    if (is_left_out())
        return;
    make_voters(3);
    destroy(0);
    replica_note_gone(member[2].replica, 100, now);
    replica_note_gone(member[1].replica, 100, now);
    ck_assert(wait_for_leader(ELECTION_MS / 2) != NULL);
}

TEST(a_leader_that_lives_is_not_replaced_by_one_rumour)
{
    if (is_left_out())
        return;
    make_voters(3);
    replica_note_gone(member[1].replica, 100, now);
    for (unsigned i = 0; i < 5 * ELECTION_MS; i++) {
        step();
        ck_assert(leader() == &member[0]);
    }
}

TEST(a_leader_that_is_cut_off_does_not_speak)
{
    if (is_left_out())
        return;
    make_voters(3);
    member[0].cut = true;
    for (unsigned i = 0; i < ELECTION_MS; i++)
        step();
    ck_assert(!replica_is_settled(member[0].replica, now));
    ck_assert(wait_for_leader(5000) != NULL);
    ck_assert(!replica_leads(member[0].replica));
    member[0].cut = false;
    for (unsigned i = 0; i < 5 * ELECTION_MS; i++)
        step();
    ck_assert_uint_eq(replica_leader(member[0].replica), leader()->id);
}

TEST(a_leader_that_was_stopped_does_not_speak_when_it_continues)
{
    struct replica *stopped;

    if (is_left_out())
        return;
    make_voters(3);
    stopped = member[0].replica;
    member[0].replica = NULL;
    ck_assert(wait_for_leader(5000) != NULL);
    ck_assert(!replica_is_settled(stopped, now));
    member[0].replica = stopped;
    step();
    ck_assert(leader() != &member[0]);
}

TEST(a_lost_one_is_taken_off_the_list)
{
    if (is_left_out())
        return;
    make_voters(3);
    destroy(2);
    while (replica_remove(member[0].replica, 102, now) < 0)
        step();
    for (unsigned i = 0; i < 100; i++)
        step();
    ck_assert_uint_eq(replica_count(member[0].replica), 2);
    ck_assert_int_eq(replica_set_vote(member[0].replica, 101, false, now), 0);
    for (unsigned i = 0; i < 100; i++)
        step();
    destroy(1); /* the vote of the leader is enough now */
    replica_go_on_alone(member[0].replica, now);
    propose(&member[0], "one");
    ck_assert(wait_for_leader(100) == &member[0]);
}

/* Else the list of the leader is one that can decide nothing, and the list of the one
 * that it has taken off, older records: neither ever leads again. */
TEST(one_that_answers_is_not_taken_off)
{
    if (is_left_out())
        return;
    make_voters(3);
    destroy(2);
    for (unsigned i = 0; i < 2 * ELECTION_MS; i++, step())
        ck_assert_int_lt(replica_remove(member[0].replica, 101, now), 0);
    ck_assert_int_lt(replica_set_vote(member[0].replica, 101, false, now), 0);
    ck_assert_int_eq(replica_remove(member[0].replica, 102, now), 0);
}

/* The third one is silent, and nobody knows it yet. */
TEST(one_that_leaves_keeps_its_vote_beside_a_silent_one)
{
    if (is_left_out())
        return;
    make_voters(3);
    member[1].cut = true;
    for (unsigned i = 0; i < 2 * ELECTION_MS; i++, step())
        ck_assert_int_lt(replica_set_vote(member[0].replica, 102, false, now), 0);
    member[1].cut = false;
    for (unsigned i = 0; i < ELECTION_MS; i++, step())
        if (replica_set_vote(member[0].replica, 102, false, now) == 0)
            return;
    ck_abort_msg("it keeps its vote");
}

/* Its node leaves while no other one can take its place. */
TEST(one_that_leaves_is_needed_until_it_knows_that_it_has_no_vote)
{
    if (is_left_out())
        return;
    make_voters(3);
    while (replica_set_vote(member[0].replica, 102, false, now) < 0)
        step();
    while (replica_is_needed(member[2].replica))
        step();
    ck_assert(!replica_is_changing(member[0].replica));
    while (replica_remove(member[0].replica, 102, now) < 0)
        step();
    destroy(2);
    destroy(1); /* and this one's vote would be needed */
    for (unsigned i = 0; i < 2 * ELECTION_MS; i++)
        step();
    ck_assert(leader() == NULL);
}

/* Its node is not part of the job any more, and its process ends soon. */
TEST(one_that_answers_is_taken_off_if_another_one_can_be_lost_then)
{
    if (is_left_out())
        return;
    make_voters(4);
    for (unsigned i = 0; i < ELECTION_MS; i++)
        step();
    ck_assert_int_eq(replica_remove(member[0].replica, 101, now), 0);
    for (unsigned i = 0; i < 100; i++)
        step();
    ck_assert_uint_eq(replica_count(member[0].replica), 3);
    destroy(1);
    destroy(2);
    propose(&member[0], "one");
    ck_assert(wait_for_leader(1000) == &member[0]);
}

TEST(one_that_does_not_follow_stops_no_other_change)
{
    struct replica_member m;

    if (is_left_out())
        return;
    make_voters(3);
    while (replica_add(member[0].replica, 103, "103", now) < 0)
        step();
    for (unsigned i = 0; i < 100; i++)
        step();
    replica_show(member[0].replica, 3, &m);
    ck_assert(!m.keeps && !m.follows);
    propose(&member[0], "one");
    ck_assert_int_eq(replica_set_vote(member[0].replica, 103, true, now), 0);
    ck_assert(replica_is_changing(member[0].replica));
    for (unsigned i = 0; i < 3 * ELECTION_MS; i++)
        step();
    ck_assert(!replica_is_changing(member[0].replica));
    ck_assert_int_eq(replica_remove(member[0].replica, 103, now), 0);
}

TEST(one_that_gets_records_follows_before_it_votes)
{
    struct replica_member m;

    if (is_left_out())
        return;
    make_voters(3);
    propose(&member[0], "one");
    create(3, false);
    while (replica_add(member[0].replica, 103, "103", now) < 0)
        step();
    for (unsigned i = 0; i < 100; i++)
        step();
    ck_assert_int_eq(replica_set_vote(member[0].replica, 103, false, now), 0);
    for (unsigned i = 0; i < ELECTION_MS; i++)
        step();
    replica_show(member[0].replica, 3, &m);
    ck_assert(m.follows && !m.votes && m.keeps);
    destroy(3);
    for (unsigned i = 0; i < 2 * ELECTION_MS; i++)
        step();
    replica_show(member[0].replica, 3, &m);
    ck_assert(!m.follows);
}

/* Its answers are too old to prove that no other one leads, but it lives. */
TEST(one_that_answers_late_is_not_taken_off)
{
    if (is_left_out())
        return;
    make_voters(3);
    member[1].slow = 2 * ELECTION_MS;
    for (unsigned i = 0; i < 3 * ELECTION_MS; i++)
        step();
    for (unsigned i = 0; i < 3 * ELECTION_MS; i++, step())
        ck_assert_int_lt(replica_remove(member[0].replica, 101, now), 0);
    ck_assert(leader() == &member[0]);
}

/* Its last answer is recent, but proves no more that a list with it can decide. */
TEST(one_whose_process_is_gone_makes_no_majority)
{
    if (is_left_out())
        return;
    make_voters(3);
    member[1].cut = true;
    for (unsigned i = 0; i < 2 * ELECTION_MS; i++)
        step();
    destroy(2);
    replica_note_gone(member[0].replica, 102, now);
    ck_assert_int_lt(replica_remove(member[0].replica, 101, now), 0);
    member[1].cut = false;
    ck_assert(wait_for_leader(5000) != NULL);
}

/* So a new leader waits until it knows which ones answer. */
TEST(a_new_leader_takes_off_none_that_answers)
{
    struct member *m;

    if (is_left_out())
        return;
    make_voters(3);
    destroy(0);
    m = wait_for_leader(5000);
    ck_assert_ptr_nonnull(m);
    for (unsigned i = 0; i < 2 * ELECTION_MS; i++, step())
        ck_assert_int_lt(replica_remove(m->replica, m == &member[1] ? 102 : 101, now),
                         0);
    ck_assert(leader() == m);
    ck_assert_int_eq(replica_remove(m->replica, 100, now), 0);
}

TEST(garbage_changes_nothing)
{
    uint8_t data[200];

    if (is_left_out())
        return;
    make_voters(3);
    for (unsigned i = 0; i < 20000; i++) {
        size_t size = below(sizeof(data));

        for (size_t k = 0; k < size; k++)
            data[k] = (uint8_t)below(256);
        if (size > 18 && below(2)) { /* a good beginning: from 104, address "" */
            memset(data + 8, 0, 11);
            data[8] = 104;
            data[18] = (uint8_t)below(8);
        }
        replica_receive(member[1].replica, data, size < 19 ? size : 19 + below(60),
                        now);
    }
    ck_assert_uint_eq(replica_count(member[1].replica), 3);
}

static void expect_last_record(struct member *m, const char *text)
{
    size_t size;
    const uint8_t *records = replica_records(m->replica, &size);

    ck_assert_uint_ge(size, strlen(text));
    ck_assert_int_eq(memcmp(records + size - strlen(text), text, strlen(text)), 0);
    /* what was compact, and what came since */
    ck_assert_uint_le(size, compact_size + (COMPACT_AFTER + 1) * 6);
}

TEST(records_of_a_long_job_stay_few_and_a_late_one_gets_them)
{
    char text[16];

    if (is_left_out())
        return;
    compact_size = 60;
    make_voters(3);
    for (unsigned i = 0; i < 5000; i++) {
        snprintf(text, sizeof(text), "%05u,", i);
        propose(&member[0], text);
        step();
    }
    ck_assert(wait_for_leader(100) == &member[0]);
    ck_assert_uint_eq(snapshots_delivered, 0);
    for (unsigned i = 0; i < 100; i++)
        step();
    for (unsigned i = 0; i < 3; i++)
        expect_last_record(&member[i], "04999,");
    add_voter(3);
    ck_assert_uint_ge(snapshots_delivered, 1);
    expect_last_record(&member[3], "04999,");
    destroy(0); /* a majority of four needs the late one */
    ck_assert(wait_for_leader(5000) != NULL);
    propose(leader(), "last,");
    ck_assert(wait_for_leader(100) != NULL);
    expect_last_record(leader(), "last,");
}

static void disturb(unsigned i)
{
    static struct replica *stopped[COUNT];

    switch (below(4)) {
    case 0:
        member[i].cut = !member[i].cut;
        break;
    case 1:
        for (unsigned k = 0; k < COUNT; k++)
            if (member[k].replica && leader())
                replica_note_gone(member[i].replica, leader()->id, now);
        break;
    case 2: /* stopped for a while */
        stopped[i] = member[i].replica;
        member[i].replica = NULL;
        for (unsigned n = below(3 * ELECTION_MS); n > 0; n--)
            step();
        member[i].replica = stopped[i];
        break;
    default:
        lost_in_100 = below(30);
        delay_max = 1 + below(ELECTION_MS);
        break;
    }
}

static void run_seed(uint64_t seed)
{
    char text[16];

    setup();
    chance = seed * 77777;
    make_voters(seed % 2 ? 3 : 5);
    for (unsigned i = 0; i < 6000; i++) {
        if (below(300) == 0)
            disturb(below(seed % 2 ? 3 : 5));
        if (leader() && below(3) == 0) {
            snprintf(text, sizeof(text), "%u,", i);
            propose(leader(), text);
        }
        step();
    }
    for (unsigned i = 0; i < COUNT; i++)
        member[i].cut = false;
    lost_in_100 = 0;
    delay_max = 2;
    ck_assert_msg(wait_for_leader(20 * ELECTION_MS) != NULL,
                  "seed %u: nobody leads in the end", (unsigned)seed);
    teardown();
}

TEST(under_loss_cuts_and_stops_nothing_is_forgotten)
{
    if (is_left_out())
        return;
    for (uint64_t seed = 1; seed <= 30; seed++)
        run_seed(seed);
    setup();
}

/* -- two of them --------------------------------------------------------------------
 */

static void add_second(unsigned leads, unsigned i)
{
    char address[16];

    snprintf(address, sizeof(address), "%u", 100 + i);
    create(i, false);
    for (unsigned k = 0; k < 1000; k++, step())
        if (replica_add(member[leads].replica, 100 + i, address, now) == 0)
            break;
    for (unsigned k = 0; k < 1000; k++, step())
        if (replica_set_vote(member[leads].replica, 100 + i, false, now) == 0)
            break;
}

static bool is_pair(unsigned i)
{
    struct replica_pair p;

    return member[i].replica && replica_pair(member[i].replica, &p) && p.known;
}

static void make_pair(void)
{
    create(0, true);
    add_second(0, 1);
    for (unsigned k = 0; k < 3000 && !(is_pair(0) && is_pair(1)); k++)
        step();
    ck_assert(is_pair(0) && is_pair(1));
}

TEST(one_of_a_pair_decides_only_what_the_other_one_has)
{
    if (is_left_out())
        return;
    make_pair();
    propose(&member[0], "one");
    ck_assert(!replica_is_settled(member[0].replica, now));
    ck_assert(wait_for_leader(100) == &member[0]);
    member[1].cut = true;
    propose(&member[0], "two");
    ck_assert(wait_for_leader(10 * ELECTION_MS) == NULL);
    ck_assert_uint_eq(lasting_size, 3);
    ck_assert(!replica_is_heard(member[0].replica, now));
    replica_go_on_alone(member[0].replica, now);
    ck_assert(replica_is_heard(member[0].replica, now));
    step();
    ck_assert(leader() == &member[0]);
    ck_assert_uint_eq(lasting_size, 6);
    member[1].cut = false; /* it was not there in time, and is one of a pair again */
    for (unsigned k = 0; k < 3000 && !(is_pair(0) && is_pair(1)); k++)
        step();
    propose(&member[0], "three");
    ck_assert(!replica_is_settled(member[0].replica, now));
    ck_assert(wait_for_leader(100) == &member[0]);
}

TEST(the_other_one_of_a_pair_has_all_that_was_decided)
{
    if (is_left_out())
        return;
    make_pair();
    propose(&member[0], "one");
    while (!replica_is_settled(member[0].replica, now))
        step();
    check_speakers(); /* the second one does not know yet that it lasts */
    destroy(0);
    replica_go_on_alone(member[1].replica, now);
    ck_assert(wait_for_leader(10) == &member[1]);
    ck_assert_uint_eq(lasting_size, 3);
    ck_assert_uint_eq(replica_count(member[1].replica), 1);
    add_second(1, 2);
    for (unsigned k = 0; k < 3000 && !is_pair(2); k++)
        step();
    propose(&member[1], "two");
    ck_assert(wait_for_leader(100) == &member[1]);
    destroy(1);
    replica_go_on_alone(member[2].replica, now);
    ck_assert(wait_for_leader(10) == &member[2]);
    ck_assert_uint_eq(lasting_size, 6);
}

TEST(a_third_one_makes_a_majority_of_a_pair)
{
    struct replica_pair p;

    if (is_left_out())
        return;
    make_pair();
    for (unsigned k = 0; k < 1000; k++, step())
        if (replica_set_vote(member[0].replica, 101, true, now) == 0)
            break;
    for (unsigned k = 0; k < 3000 && !all_vote(2); k++)
        step();
    add_voter(2);
    ck_assert(!replica_pair(member[0].replica, &p));
    ck_assert(!replica_pair(member[1].replica, &p));
    member[1].cut = true;
    propose(&member[0], "one");
    ck_assert(wait_for_leader(100) == &member[0]);
}

TEST(one_of_a_pair_is_not_removed_in_passing)
{
    if (is_left_out())
        return;
    make_pair();
    member[1].cut = true;
    for (unsigned k = 0; k < 10 * ELECTION_MS; k++, step())
        ck_assert_int_eq(replica_remove(member[0].replica, 101, now), -1);
    replica_go_on_alone(member[0].replica, now);
    ck_assert_int_eq(replica_remove(member[0].replica, 101, now), 0);
}

/* What the first one has sent before it went on alone arrives after that. */
TEST(a_late_message_promises_nothing)
{
    struct replica_pair p;

    if (is_left_out())
        return;
    make_pair();
    member[0].slow = 2 * ELECTION_MS;
    for (unsigned k = 0; k < 2 * ELECTION_MS; k++)
        step();
    member[1].mute = true;
    while (replica_pair(member[0].replica, &p) && now < p.silent_ms)
        step();
    replica_go_on_alone(member[0].replica, now);
    for (unsigned k = 0; k < 2 * ELECTION_MS; k++, step())
        ck_assert(!replica_pair(member[1].replica, &p) || now >= p.promised_ms);
}

/* Neither would be the leader of a later term then. */
TEST(one_that_went_on_alone_hears_nothing_of_the_other_one)
{
    if (is_left_out())
        return;
    make_pair();
    member[0].cut = true;
    for (unsigned k = 0; k < 2 * ELECTION_MS; k++)
        step();
    replica_go_on_alone(member[1].replica, now);
    ck_assert(replica_is_settled(member[1].replica, now));
    propose(&member[1], "one");
    check_speakers();
    member[0].cut = false;
    for (unsigned k = 0; k < 10 * ELECTION_MS; k++)
        step();
    ck_assert(replica_is_settled(member[1].replica, now));
    ck_assert_uint_eq(lasting_size, 3);
}

/*
 * What their owners do. The first one goes on when the second one was silent; the
 * second one if it knows that the first one has died, and had not gone on before. Or
 * (claims) each of them, if it is the first of the two to claim the pair.
 */
static uint64_t claimed[64], claimed_by[64];
static unsigned claims;
static bool died; /* the first one */
static unsigned moves;

static bool claim(uint64_t pair, uint64_t id)
{
    for (unsigned i = 0; i < claims; i++)
        if (claimed[i] == pair)
            return claimed_by[i] == id;
    ck_assert_uint_lt(claims, 64);
    claimed[claims] = pair;
    claimed_by[claims++] = id;
    return true;
}

static void look_at_pair(unsigned i, bool by_claim, bool *over)
{
    struct replica_pair p;

    if (!member[i].replica || !replica_pair(member[i].replica, &p))
        return;
    if (by_claim  ? now < p.silent_ms
        : p.leads ? now < p.silent_ms
                  : !died || now >= p.promised_ms)
        return;
    if (!by_claim || claim(p.id, member[i].id))
        replica_go_on_alone(member[i].replica, now);
    else
        over[i] = true;
}

static void run_pair(uint64_t seed)
{
    struct replica *stopped[2] = { NULL, NULL };
    bool over[2] = { false, false }, by_claim = seed % 2;
    unsigned wakes[2] = { 0, 0 };
    char text[16];

    setup();
    claims = 0;
    died = false;
    chance = seed * 77777;
    make_pair();
    for (unsigned n = 0; n < 3000; n++) {
        unsigned i = below(2);

        if (below(200) == 0 && member[i].replica) {
            unsigned what = below(5);

            if (what == 0)
                member[i].cut = !member[i].cut;
            else if (what == 1)
                lost_in_100 = below(30), delay_max = 1 + below(2 * ELECTION_MS);
            else if (what == 2 && !stopped[i])
                stopped[i] = member[i].replica, wakes[i] = n + below(6 * ELECTION_MS);
            else if (what == 3)
                member[i].mute = !member[i].mute;
            else if (!by_claim && !stopped[0] && below(2) == 0)
                destroy(0), died = true;
        }
        for (i = 0; i < 2; i++) {
            if (stopped[i])
                member[i].replica = NULL;
            if (stopped[i] && n >= wakes[i]) {
                member[i].replica = stopped[i];
                stopped[i] = NULL;
            }
            if (over[i])
                destroy(i), over[i] = false;
            if (!stopped[i])
                look_at_pair(i, by_claim, over);
        }
        if (leader() && below(3) == 0) {
            snprintf(text, sizeof(text), "%u,", n);
            propose(leader(), text);
        }
        step();
    }
    for (unsigned i = 0; i < 2; i++)
        if (stopped[i])
            member[i].replica = stopped[i];
    moves += !by_claim && died && leader() == &member[1];
    teardown();
}

TEST(of_a_pair_only_one_ever_goes_on)
{
    if (is_left_out())
        return;
    for (uint64_t seed = 1; seed <= 200; seed++)
        run_pair(seed);
    ck_assert_uint_gt(moves, 10);
    setup();
}
