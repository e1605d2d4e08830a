/* SPDX-License-Identifier: MIT */
/* Journals of earlier versions can be read: these bytes never change. */
#include "rendezvous/job/registry/job_records.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/job/records/journal.h"
#include "rendezvous/job/records/limits.h"
#include "rendezvous/job/registry/job_end_text.h"
#include "rendezvous/job/registry/registry.h"
#include "tests/fakes/disk/memdisk.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/registry_world.h"

/* A job as an earlier version wrote it: type, and what follows the instance, in hex. */
static const struct {
    unsigned type;
    const char *hex;
} records[] = {
    { 1, "030072756e4d00000000000000020000000400000003000000102700000500000006"
         "0000000700000008000000090000000a000000030000000102000000010a00636865"
         "636b706f696e740300322c330400702e707904006162636401" },
    { 2, "0203040b0000000000000002000000010001010600000001f7ffffff0c0000000200"
         "000006000000000000000100000037000000000000002c000000000000000700312e"
         "322e332e3463000000040074657874" },
    { 3, "05010000000200000003000000fcffffff0100010500000000000000060000000000"
         "0000070000000000000001006801007701007301006c05006166746572" },
    { 4, "00000000020061610700392e392e392e390700382e382e382e380200636764000000" },
    { 11, "000000000100000000000000000000000000000037000000000000000203000000ff"
          "ffffff00000000000000000000000001000000000000000100" },
    { 4, "01000000020062620700392e392e392e390700382e382e382e380200636765000000"
         "0700747261696e6572" },
    { 11, "010000000200000000000000000000000000000038000000000000000203000000ff"
          "ffffff01000000010000000300000002000000000000000001" },
    { 8, "010000003800000000000000" },
    { 9, "370000000000000001020000005802000000000000f401000000000000" },
};
#define RECORD_COUNT (sizeof(records) / sizeof(records[0]))

static const struct id128 instance = { { 1, 2, 3, 4, 5, 6, 7, 8, 9 } };

/* Read a record, without its last `cut` bytes. */
static int read_record(struct job_records_reader *reader, size_t i, size_t cut)
{
    uint8_t data[1024];
    size_t size = sizeof(instance);
    unsigned byte;
    struct err e;

    memcpy(data, &instance, sizeof(instance));
    for (const char *at = records[i].hex; sscanf(at, "%2x", &byte) == 1; at += 2)
        data[size++] = (uint8_t)byte;
    return job_records_read(reader, records[i].type, data, size - cut, &e);
}

static int take_any_record(void *arg, unsigned type, const void *data, size_t size,
                           struct err *e)
{
    return 0;
}

static bool journal_has(const void *bytes, size_t size)
{
    size_t length;
    const uint8_t *file = memdisk_get(disk, "journal", &length);

    ck_assert_ptr_nonnull(file);
    return memmem(file, length, bytes, size) != NULL;
}

static struct job *read_job(size_t cut)
{
    struct job_records_reader *reader = job_records_reader_create(1000);

    for (size_t i = 0; i < RECORD_COUNT; i++)
        ck_assert_int_eq(read_record(reader, i, i == 0 ? cut : 0), 0);
    return job_records_reader_finish(reader);
}

TEST(a_job_is_read)
{
    struct job *job = read_job(0);
    const struct job_config *c = &job->membership.config;

    ck_assert_str_eq(job->run_id, "run");
    ck_assert_uint_eq(job->created_wall_ms, 77);
    ck_assert_uint_eq(c->min_nodes, 2);
    ck_assert_uint_eq(c->max_nodes, 4);
    ck_assert_uint_eq(c->restart_backoff_ms, 10);
    ck_assert(c->limit_spares && c->strict_fence && c->preflight);
    ck_assert_uint_eq(c->spares, 2);
    ck_assert_int_eq(c->scale, JOB_SCALE_CHECKPOINT);
    ck_assert_str_eq(c->no_restart_on, "2,3");
    ck_assert_str_eq(c->program, "p.py");
    ck_assert_str_eq(c->arguments_hash, "abcd");
    job_destroy(job);
}

TEST(a_setting_that_came_later_may_be_missing)
{
    struct job *job = read_job(1);

    ck_assert(!job->membership.config.preflight);
    ck_assert_str_eq(job->membership.config.arguments_hash, "abcd");
    job_destroy(job);
}

TEST(what_a_crund_with_peers_has_written_is_none)
{
    struct job_records_reader *reader = job_records_reader_create(1000);
    struct err e;

    ck_assert_int_lt(job_records_read(reader, JOURNAL_REPLICA_TYPES, "", 0, &e), 0);
    ck_assert_str_eq(e.text, "it is that of a crund with --peers");
    ck_assert_ptr_null(job_records_reader_finish(reader));
}

TEST(the_journal_holds_no_incarnation)
{
    struct id128 digest, incarnation = join_message(0, "resnet").join.incarnation;
    struct msg resume = { .type = MSG_RESUME };

    begin_registry_on_disk();
    run_job();
    digest = digest_of(NULL, &incarnation);
    ck_assert(journal_has(&digest, sizeof(digest)));
    ck_assert(!journal_has(&incarnation, sizeof(incarnation)));
    /* and what it holds is no ticket */
    greet_registry(2, PEER_AGENT);
    strcpy(resume.resume.run_id, "resnet");
    resume.instance = link_of[0].instance;
    resume.resume.incarnation = digest;
    ck_assert_int_eq(send_to_registry(2, &resume), 0);
    refusal_got(2, REFUSED_FENCED, "no longer part");
    end_registry_on_disk();
}

TEST(an_older_setting_may_not_be_missing)
{
    struct job_records_reader *reader = job_records_reader_create(1000);

    ck_assert_int_eq(read_record(reader, 0, 2), -1);
    ck_assert_ptr_null(job_records_reader_finish(reader));
}

TEST(the_state_is_read)
{
    struct job *job = read_job(0);
    const struct membership *m = &job->membership;

    ck_assert_int_eq(m->state, JOB_STOPPING);
    ck_assert_int_eq(m->stop.cause, JOB_CAUSE_SCALE_UP);
    ck_assert_int_eq(m->stop.reason, JOB_REASON_NOT_FORMED);
    ck_assert(m->stop.ending && m->stop.too_young && !m->stop.restart_spent);
    ck_assert_int_eq(m->stop.exit_code, -9);
    ck_assert_uint_eq(m->stop.root.node, 1);
    ck_assert_uint_eq(m->stop.root.at, 44);
    ck_assert_uint_eq(m->epoch, 11);
    ck_assert_uint_eq(m->restarts, 2);
    ck_assert_uint_eq(m->crash_loop, 6);
    ck_assert_uint_eq(m->world_size, 6);
    ck_assert_str_eq(job->store_address, "1.2.3.4");
    ck_assert_uint_eq(job->store_port, 99);
    ck_assert_str_eq(job->text, "text");
    job_destroy(job);
}

TEST(the_failure_is_read)
{
    struct job *job = read_job(0);
    const struct failure *f = &job->failure;

    ck_assert_int_eq(f->kind, FAILURE_HANG);
    ck_assert_int_eq(f->code, -4);
    ck_assert(f->core_dumped && !f->out_of_memory && f->final);
    ck_assert_uint_eq(f->ran_ms, 7);
    ck_assert_str_eq(f->log, "l");
    ck_assert_str_eq(job->afterwards, "after");
    job_destroy(job);
}

TEST(the_nodes_are_read)
{
    struct job *job = read_job(0);
    const struct membership_node *n = job->membership.node;

    ck_assert_str_eq(job->node[0]->host, "aa");
    ck_assert_str_eq(job->node[0]->role, "");
    ck_assert_str_eq(job->node[1]->role, "trainer");
    ck_assert_uint_eq(job->node[1]->pid, 101);
    ck_assert_uint_eq(n[1].identity, 56);
    ck_assert_int_eq(n[1].state, MEMBERSHIP_NODE_ACTIVE);
    ck_assert_uint_eq(n[1].first_rank, 3);
    ck_assert(n[0].host && !n[0].leaving && n[1].leaving);
    ck_assert_uint_eq(job->membership.slot_identity[1], 56);
    ck_assert_uint_eq(job->membership.pasts, 1);
    ck_assert(job->membership.past[0].quarantined);
    ck_assert_uint_eq(job->membership.past[0].at[1], 500);
    job_destroy(job);
}

TEST(the_age_and_the_counts_of_a_job_are_kept)
{
    struct job_records_reader *reader = job_records_reader_create(500);
    struct job_config config = join_message(0, "run").join.config;
    struct job *job = job_create("run", &config, &instance, 1000);
    struct err e = { 0 };
    struct journal *j;
    uint64_t cut;

    disk = memdisk_create();
    j = journal_open(memdisk_disk(disk), take_any_record, NULL, &cut, &e);
    job->stepped_ms = 31000;
    job->counts.hangs = 1;
    for (uint32_t i = 0; i < JOB_RESTART_COUNT; i++)
        job->counts.restarts[i] = 2 + i;
    job_records_put_all(j, job);
    ck_assert_int_eq(journal_commit(j, &e), 0);
    journal_close(j);
    job_destroy(job);
    j = journal_open(memdisk_disk(disk), job_records_read, reader, &cut, &e);
    ck_assert_msg(j != NULL, "%s", e.text);
    job = job_records_reader_finish(reader);
    ck_assert_uint_eq(membership_state_age(&job->membership, 500), 30000);
    ck_assert_uint_eq(job->counts.hangs, 1);
    for (uint32_t i = 0; i < JOB_RESTART_COUNT; i++)
        ck_assert_uint_eq(job->counts.restarts[i], 2 + i);
    journal_close(j);
    job_destroy(job);
    memdisk_destroy(disk);
    disk = NULL;
}

/* -- records without what is superseded -------------------------------------------- */

struct kept {
    uint8_t data[1 << 16];
    size_t size;
};

static void on_keep(void *arg, const void *data, size_t size)
{
    struct kept *k = arg;

    ck_assert_uint_le(size, sizeof(k->data) - k->size);
    memcpy(k->data + k->size, data, size);
    k->size += size;
}

static bool on_has_kept(void *arg)
{
    return true;
}

static struct journal_keeper keeper_of(struct kept *k)
{
    return (
        struct journal_keeper){ .keep = on_keep, .has_kept = on_has_kept, .arg = k };
}

/* All that a registry knows that goes on with these records. */
static void take_over(const struct kept *from, struct kept *out)
{
    struct journal_keeper keeper = keeper_of(out);
    struct err e = { 0 };

    begin_registry_as((struct registry_config){ .stands_by = { { 1 } } });
    ck_assert_msg(
        registry_take_over(g, from->data, from->size, now, now + wall_ahead, &e) == 0,
        "%s", e.text);
    ck_assert_ptr_nonnull(registry_jobs(g));
    registry_keep(g, &keeper, false);
    ck_assert_int_eq(registry_commit(g, &e), 0);
    end_registry();
}

TEST(compact_records_mean_the_same)
{
    static struct kept all, compact, from_all, from_compact, again;
    struct journal_keeper keeper = keeper_of(&all);
    struct err e;

    begin_registry(false);
    registry_keep(g, &keeper, false);
    run_job();
    for (int i = 0; i < 3; i++) {
        report_event(0, MSG_FAILED);
        pass_ticks(100);
        ck_assert_int_eq(registry_commit(g, &e), 0);
    }
    end_registry();
    keeper = keeper_of(&compact);
    ck_assert_int_eq(registry_compact(all.data, all.size, now, &keeper, &e), 0);
    ck_assert_uint_lt(compact.size, all.size);
    keeper = keeper_of(&again);
    ck_assert_int_eq(registry_compact(compact.data, compact.size, now, &keeper, &e), 0);
    ck_assert_uint_eq(again.size, compact.size);
    take_over(&all, &from_all);
    take_over(&compact, &from_compact);
    ck_assert_uint_eq(from_all.size, from_compact.size);
    ck_assert_int_eq(memcmp(from_all.data, from_compact.data, from_all.size), 0);
}

static uint64_t number_after(uint64_t since)
{
    static const struct job_owner all = { .uid = 0 };
    struct msg_event event = { .number = 0 };

    (void)registry_show_event(g, since, "", &all, ACCESS_AGENT, &event);
    return event.number;
}

/* The reason of a stop, and the numbers of events that others have seen. */
TEST(a_takeover_goes_on_with_what_others_know)
{
    static struct kept all, compact, again;
    struct msg stop = { .type = MSG_STOP_JOB };
    struct journal_keeper keeper = keeper_of(&all);
    uint64_t seen = 0, next;
    const struct job *job;
    struct err e = { 0 };

    begin_registry(false);
    registry_keep(g, &keeper, false);
    run_job();
    snprintf(stop.stop_job.user, sizeof(stop.stop_job.user), "eve");
    greet_registry(2, PEER_CTL);
    ck_assert_int_eq(send_to_registry(2, &stop), 0);
    (void)message_got(2, MSG_ACK);
    ck_assert_int_eq(registry_commit(g, &e), 0);
    while ((next = number_after(seen)))
        seen = next;
    end_registry();
    keeper = keeper_of(&compact);
    ck_assert_int_eq(registry_compact(all.data, all.size, now, &keeper, &e), 0);
    for (int i = 0; i < 2; i++) {
        const struct kept *from = i ? &compact : &all;

        begin_registry_as((struct registry_config){ .stands_by = { { 1 } } });
        ck_assert_int_eq(
            registry_take_over(g, from->data, from->size, now, now + wall_ahead, &e),
            0);
        job = registry_jobs(g);
        ck_assert_ptr_nonnull(strstr(job_ended_by_text(job), "user eve"));
        ck_assert_uint_gt(number_after(0), seen);
        keeper = keeper_of(&again);
        registry_keep(g, &keeper, true);
        end_registry();
    }
}

/* It goes on with the wait for nodes, on a machine whose clocks are others. */
TEST(clocks_that_are_ahead_end_no_wait)
{
    static struct kept all;
    struct journal_keeper keeper = keeper_of(&all);
    const struct membership *m;
    struct err e = { 0 };

    begin_registry(false);
    registry_keep(g, &keeper, false);
    join_node(0);
    ck_assert_int_eq(registry_commit(g, &e), 0);
    end_registry();
    now += 36000000;
    begin_registry_as((struct registry_config){ .stands_by = { { 1 } } });
    ck_assert_int_eq(
        registry_take_over(g, all.data, all.size, now, now + wall_ahead, &e), 0);
    m = &registry_jobs(g)->membership;
    ck_assert_uint_ge(membership_time_left(m, now) + m->config.lease_ms,
                      m->config.join_timeout_ms);
    end_registry();
}

/* Wherever it stands among the others. */
TEST(records_of_a_newer_version_are_not_made_shorter)
{
    static const uint8_t unknown[] = { 99, 0, 1, 0, 0, 0, 'x' };
    static struct kept all, some, compact;
    struct journal_keeper keeper = keeper_of(&all);
    size_t length;
    struct err e;

    begin_registry(false);
    registry_keep(g, &keeper, false);
    run_job();
    ck_assert_int_eq(registry_commit(g, &e), 0);
    end_registry();
    keeper = keeper_of(&compact);
    for (size_t at = 0; at <= all.size; at += 6 + length) {
        some = all;
        some.size = at + sizeof(unknown);
        memcpy(some.data + at, unknown, sizeof(unknown));
        ck_assert_int_eq(registry_compact(some.data, some.size, now, &keeper, &e), -1);
        length = at < all.size ? all.data[at + 2] + 256u * all.data[at + 3] : 0;
    }
    ck_assert_uint_eq(compact.size, 0);
}
