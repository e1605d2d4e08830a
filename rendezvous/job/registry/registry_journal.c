/* SPDX-License-Identifier: MIT */
/* When the jobs are saved, and how a restart or another host reads them again. */
#include "rendezvous/job/registry/registry_internal.h"

#include <stdio.h>

#include "rendezvous/job/history/job_history.h"
#include "rendezvous/job/records/journal.h"
#include "rendezvous/job/registry/job_records.h"

/* Not each event is saved with a record: so many may have followed. */
#define EVENTS_UNSAVED_MAX 1000

static void put_rendezvous(struct registry *g, struct journal *journal)
{
    g->saved_event = event_list_last(g->events);
    job_records_put_rendezvous(journal, &g->id, g->saved_event);
}

static void dump_jobs(void *arg, struct journal *journal)
{
    struct registry *g = arg;

    put_rendezvous(g, journal);
    for (size_t i = 0; i < g->claims.count; i++)
        job_records_put_claim(journal, &g->claims.list[i]);
    for (const struct job *j = g->jobs; j; j = j->next)
        job_records_put_all(journal, j);
}

/* Take a snapshot if it is due. No room for it is not an error. */
static int shorten_journal(struct registry *g, struct err *e)
{
    if (!journal_wants_snapshot(g->journal))
        return 0;
    return journal_snapshot(g->journal, dump_jobs, g, e) < 0 ? -1 : 0;
}

bool registry_is_saved(const struct registry *g)
{
    return !g->journal || !journal_pending(g->journal);
}

bool registry_is_settled(const struct registry *g)
{
    return !g->journal || journal_is_settled(g->journal);
}

int registry_commit(struct registry *g, struct err *e)
{
    if (registry_is_saved(g))
        return 0;
    if (event_list_last(g->events) != g->saved_event)
        put_rendezvous(g, g->journal);
    if (journal_commit(g->journal, e) < 0)
        return -1;
    return shorten_journal(g, e);
}

/* For how long the job had no rendezvous. One of the clocks may have begun anew with
 * the machine, the other may have been set. */
static uint64_t away_ms(const struct registry *g, const struct job *j)
{
    uint64_t clock = g->now_ms - j->stepped_ms;
    uint64_t wall = g->wall_ms - j->stepped_wall_ms;

    if (g->now_ms < j->stepped_ms && g->wall_ms < j->stepped_wall_ms)
        return 0;
    return clock < wall ? clock : wall; /* less than 0 is very much */
}

/* Ends the reader. moved: from another machine, whose clocks are others. Then it was
 * away for a lease at most: a wall clock that is wrong by more ends no job. */
static void restore_jobs(struct registry *g, struct job_records_reader *reader,
                         bool moved)
{
    uint64_t away, last;
    struct msg_event event;

    g->id = job_records_reader_rendezvous(reader, &last);
    event_list_continue(g->events, last > 0 ? last + EVENTS_UNSAVED_MAX : 0);
    job_records_reader_move_claims(reader, &g->claims);
    g->jobs = job_records_reader_finish(reader);
    for (struct job *j = g->jobs; j; j = j->next) {
        event = registry_make_event(g, j, "restored", "");
        snprintf(event.text, sizeof(event.text),
                 "the rendezvous %s: earlier events are not kept",
                 moved ? "has moved" : "was restarted");
        event_list_add(g->events, &event, &j->owner, j->source); /* not in the log */
        job_history_add_event(j->history, &event);
        away = away_ms(g, j);
        if (moved && away > j->membership.config.lease_ms)
            away = j->membership.config.lease_ms;
        membership_add_away(&j->membership, away);
        j->stepped_ms = g->now_ms;
        j->stepped_wall_ms = g->wall_ms;
        if (j->membership.state == JOB_DONE)
            j->done_ms = g->now_ms;
    }
}

int registry_open_journal(struct registry *g, struct err *e)
{
    struct job_records_reader *reader = job_records_reader_create(g->now_ms);

    g->journal = journal_open(g->config.disk, job_records_read, reader, &g->cut_bytes,
                              e);
    restore_jobs(g, reader, false);
    if (!g->journal)
        return -1;
    if (id128_is_zero(&g->id)) {
        g->id = g->config.random_id(g->config.arg);
        put_rendezvous(g, g->journal);
    }
    return shorten_journal(g, e);
}

void registry_keep(struct registry *g, const struct journal_keeper *keeper,
                   bool has_all)
{
    journal_close(g->journal);
    g->journal = keeper ? journal_create_kept(keeper) : NULL;
    if (keeper && id128_is_zero(&g->id)) { /* the first of several crunds */
        g->id = g->config.random_id(g->config.arg);
        put_rendezvous(g, g->journal);
    }
    if (g->jobs && !g->config.durable)
        g->instance = g->jobs->membership.instance;
    if (keeper && !has_all)
        dump_jobs(g, g->journal);
}

int registry_take_over(struct registry *g, const void *records, size_t size,
                       uint64_t now_ms, uint64_t wall_ms, struct err *e)
{
    struct job_records_reader *reader;
    int r;

    g->now_ms = now_ms;
    g->wall_ms = wall_ms;
    g->source = SOURCE_NONE;
    reader = job_records_reader_create(now_ms);
    r = journal_give(records, size, job_records_read, reader, e);
    restore_jobs(g, reader, true);
    return r;
}

int registry_compact(const void *records, size_t size, uint64_t now_ms,
                     const struct journal_keeper *keeper, struct err *e)
{
    struct job_records_reader *reader = job_records_reader_create(now_ms);
    struct journal *j = journal_create_kept(keeper);
    int r = journal_give(records, size, job_records_read, reader, e);

    job_records_reader_dump(reader, j);
    if (r == 0)
        r = journal_commit(j, e);
    journal_close(j);
    return r;
}

void registry_stand_by(struct registry *g)
{
    registry_keep(g, NULL, false);
    while (g->jobs)
        registry_forget(g, g->jobs);
    witness_claims_free(&g->claims);
}
