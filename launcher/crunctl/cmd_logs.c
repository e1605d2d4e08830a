/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "launcher/crunctl/ctl_client.h"
#include "launcher/crunctl/ctl_jobs.h"
#include "launcher/crunctl/ended_logs.h"
#include "launcher/crunctl/log_view.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/wire/protocol/proto.h"
#include "rendezvous/wire/protocol/rank_ranges.h"

/*
 * crunctl logs: the output of ranks, piece by piece. It asks for what follows an offset
 * in each stream, so it can ask again after anything: a lost answer, a lost connection,
 * a restart of the workers.
 */
#define WAIT_MS 500
#define FOLLOWS_MS 1 /* any wait says that the next question comes soon */
#define EPOCH_MS 200
#define PAUSE_MS 5
#define LAST_MS 5000 /* after a restart, for what is on its way to a file */
#define RETRY_MS 200
#define GONE_MS 2000        /* a rendezvous that is started again is back by then */
#define MISSING_PAGES_MAX 4 /* in a row, without any rank: there are no more */

/* -- questions --------------------------------------------------------------------- */

static int send_question(struct log_view *v, struct msg *m, struct err *e)
{
    uint64_t job_epoch = 0;
    int rc;

    m->type = MSG_SHOW_LOGS;
    m->ask_logs.of_epoch = v->epoch;
    m->ask_logs.stream = v->o->only_stdout   ? OUTPUT_STDOUT
                         : v->o->only_stderr ? OUTPUT_STDERR
                                             : OUTPUT_BOTH;
    snprintf(m->ask_logs.run_id, sizeof(m->ask_logs.run_id), "%s",
             v->o->run_id ? v->o->run_id : "");
    rc = ctl_client_ask(v->c, m, log_view_take, v, &job_epoch, e);
    if (job_epoch > v->job_epoch)
        v->job_epoch = job_epoch;
    fflush(stdout);
    return rc;
}

/* The job or its rendezvous again. CTL_EXIT_REFUSED: the job has ended. */
static int reopen_client(struct log_view *v, struct err *e)
{
    const struct ctl_job *job = NULL;
    struct ctl_client *c = NULL;
    struct ctl_jobs jobs;
    int rc = CTL_EXIT_REFUSED;

    if (v->o->endpoint) {
        c = ctl_client_open(v->o, ACCESS_OPERATE, &rc, e);
    } else {
        ctl_jobs_find(&jobs);
        if (ctl_jobs_choose(&jobs, v->o->run_id, false, &job, e) == 0 && job)
            c = ctl_client_open_job(v->o, job, v->o->timeout_ms, &rc, e);
        ctl_jobs_release(&jobs);
    }
    if (!c)
        return rc;
    if (v->owns_client)
        ctl_client_close(v->c);
    v->owns_client = true;
    v->c = c;
    return rc;
}

/* The connection was lost. */
static int resume_view(struct log_view *v, struct err *e)
{
    uint64_t until = clock_ms() + v->o->timeout_ms, gone = clock_ms() + GONE_MS;
    int rc;

    while ((rc = reopen_client(v, e)) == CTL_EXIT_UNREACHABLE && clock_ms() < until) {
        if (e->code == CTL_NOT_THERE &&
            clock_ms() > gone) /* it has ended with its job */
            return CTL_EXIT_REFUSED;
        usleep(RETRY_MS * 1000);
    }
    return rc;
}

/* Ranks that were not seen before. */
static int ask_new_ranks(struct log_view *v, uint32_t first, uint32_t last, bool tail,
                         struct err *e)
{
    struct msg m = { .ask_logs.tail = tail && v->o->tail >= 0 ? (uint32_t)v->o->tail
                                                              : UINT32_MAX,
                     .ask_logs.wait_ms = v->o->follow ? FOLLOWS_MS : 0 };
    uint64_t epoch = v->epoch;
    int rc;

    snprintf(m.ask_logs.ranks, sizeof(m.ask_logs.ranks), "%" PRIu32 "-%" PRIu32, first,
             last);
    v->answered = v->missed = 0;
    while ((rc = send_question(v, &m, e)) == CTL_EXIT_UNREACHABLE && v->o->follow &&
           v->epoch && (rc = resume_view(v, e)) == CTL_EXIT_OK)
        if (v->answered) /* rather more lines than a gap */
            m.ask_logs.tail = UINT32_MAX;
    if (rc == CTL_EXIT_OK && epoch && v->job_epoch > epoch)
        v->missed = 0;
    return rc;
}

/* Before anything is shown: the lines of several ranks need a prefix. */
static int ask_for_prefix(struct log_view *v, struct err *e)
{
    struct msg m = { .ask_logs.tail = 0 };
    int rc;

    snprintf(m.ask_logs.ranks, sizeof(m.ask_logs.ranks), "0-%d",
             LOGS_RANKS_PER_ASK - 1);
    v->counts = true;
    rc = send_question(v, &m, e);
    v->counts = false;
    return rc;
}

/* How many there are is not known: pages without a rank end them. */
static int ask_all_ranks(struct log_view *v, bool tail, struct err *e)
{
    int rc = ask_for_prefix(v, e);
    unsigned empty = 0;

    for (uint32_t first = 0; rc == CTL_EXIT_OK; first += LOGS_RANKS_PER_ASK) {
        rc = ask_new_ranks(v, first, first + LOGS_RANKS_PER_ASK - 1, tail, e);
        empty = v->answered ? 0 : empty + 1;
        if (empty && (!v->missed || empty == MISSING_PAGES_MAX))
            break;
    }
    return rc;
}

static int ask_wanted_ranks(struct log_view *v, bool tail, struct err *e)
{
    int rc = CTL_EXIT_OK;

    for (unsigned i = 0; i < v->wanted.count; i++) {
        uint64_t end = (uint64_t)v->wanted.range[i].last + 1, next;

        for (uint64_t r = v->wanted.range[i].first; r < end && rc == CTL_EXIT_OK;
             r = next) {
            next = r + LOGS_RANKS_PER_ASK < end ? r + LOGS_RANKS_PER_ASK : end;
            rc = ask_new_ranks(v, (uint32_t)r, (uint32_t)next - 1, tail, e);
        }
    }
    return rc;
}

static bool rank_is_over(const struct shown_rank *r)
{
    return r->stream[OUT].is_over && r->stream[ERR].is_over;
}

static size_t count_open_ranks(const struct log_view *v)
{
    size_t count = 0;

    for (size_t i = 0; i < v->count; i++)
        count += !rank_is_over(&v->rank[i]);
    return count;
}

/* From *at on. */
static void fill_question(const struct log_view *v, size_t *at, struct msg *m)
{
    struct rank_ranges page = { .count = 0 };
    size_t used = 0;
    unsigned count = 0;

    for (; *at < v->count && count < LOGS_RANKS_PER_ASK; (*at)++) {
        const struct shown_rank *r = &v->rank[*at];

        if (rank_is_over(r))
            continue;
        if (page.count > 60 && page.range[page.count - 1].last + 1 != r->rank)
            break; /* their list must fit */
        rank_ranges_add(&page, r->rank, r->rank);
        used += (size_t)snprintf(m->ask_logs.offsets + used,
                                 sizeof(m->ask_logs.offsets) - used,
                                 "%s%" PRIu64 ":%" PRIu64, count ? " " : "",
                                 r->stream[OUT].offset, r->stream[ERR].offset);
        count++;
    }
    (void)rank_ranges_print(&page, 0, m->ask_logs.ranks, sizeof(m->ask_logs.ranks));
    rank_ranges_fini(&page);
}

/* What has come since. wait: for output, if none has. */
static int ask_next_pieces(struct log_view *v, bool wait, struct err *e)
{
    bool one_page = count_open_ranks(v) <= LOGS_RANKS_PER_ASK;
    uint32_t wait_ms = wait && one_page ? WAIT_MS : v->o->follow ? FOLLOWS_MS : 0;
    int rc = CTL_EXIT_OK;

    v->has_text = v->is_unfinished = false;
    for (size_t at = 0; at < v->count && rc == CTL_EXIT_OK;) {
        struct msg m = { .ask_logs.wait_ms = wait_ms };

        fill_question(v, &at, &m);
        if (*m.ask_logs.ranks)
            rc = send_question(v, &m, e);
    }
    if (wait && !one_page && !v->has_text)
        usleep(WAIT_MS * 1000);
    return rc;
}

/* -- following --------------------------------------------------------------------- */

/* The job's epoch, by a question about ranks of which all is known: of all, so that
 * each node knows that its output is followed. */
static int ask_epoch(struct log_view *v, struct err *e)
{
    struct msg m = { .ask_logs = { .tail = 0, .wait_ms = FOLLOWS_MS } };
    struct rank_ranges ranks = { .count = 0 };
    int rc;

    for (size_t i = 0; i < v->count && i < LOGS_RANKS_PER_ASK; i++)
        rank_ranges_add(&ranks, v->rank[i].rank, v->rank[i].rank);
    if (v->count == 0)
        rank_ranges_add(&ranks, 0, 0);
    (void)rank_ranges_print(&ranks, 0, m.ask_logs.ranks, sizeof(m.ask_logs.ranks));
    rc = send_question(v, &m, e);
    rank_ranges_fini(&ranks);
    return rc;
}

static int show_first(struct log_view *v, bool tail, struct err *e)
{
    v->job_epoch = 0;
    return v->wanted.count ? ask_wanted_ranks(v, tail, e) : ask_all_ranks(v, tail, e);
}

/* The workers were started again, maybe more than once: the nodes have the output of
 * the newest epoch and of the one before. */
static int begin_epoch(struct log_view *v, struct err *e)
{
    uint64_t before = v->epoch, newest = v->job_epoch;
    size_t open = count_open_ranks(v);
    int rc = CTL_EXIT_OK;

    log_view_forget_ranks(v);
    fflush(stdout);
    if (open > 0 && v->is_unfinished)
        log_warn("the last output of epoch %" PRIu64 " is not in its files yet",
                 before);
    v->epoch = newest > before + 2 ? newest - 2 : before;
    while (rc == CTL_EXIT_OK && v->count == 0 && v->epoch < newest) {
        v->epoch++;
        rc = show_first(v, false, e);
    }
    v->leave_ms = 0;
    if (rc == CTL_EXIT_OK && v->count > 0) {
        if (v->epoch == before + 2)
            log_warn("the output of epoch %" PRIu64 " is not kept any more",
                     before + 1);
        else if (v->epoch > before + 2)
            log_warn("the output of epochs %" PRIu64 " to %" PRIu64
                     " is not kept any more",
                     before + 1, v->epoch - 1);
        log_info("the workers were started again: epoch %" PRIu64, v->epoch);
    } else {
        v->epoch = newest;
    }
    return rc;
}

/* Whether all of an epoch that is over has been shown, as far as it comes soon. */
static bool leave_epoch(struct log_view *v)
{
    if (!v->leave_ms || v->has_text)
        v->leave_ms = clock_ms() + LAST_MS;
    return !v->has_text && (!v->is_unfinished || clock_ms() > v->leave_ms);
}

static int follow_once(struct log_view *v, struct err *e)
{
    bool is_old = v->job_epoch > v->epoch;
    int rc;

    if (count_open_ranks(v) > 0) {
        rc = ask_next_pieces(v, !v->has_text && !is_old, e);
        if (v->has_text) /* what is written meanwhile comes at once */
            usleep(PAUSE_MS * 1000);
        else if (is_old && v->is_unfinished)
            usleep(EPOCH_MS * 1000);
    } else {
        v->has_text = v->is_unfinished = false;
        rc = ask_epoch(v, e);
        is_old = v->job_epoch > v->epoch;
        if (!is_old)
            usleep(EPOCH_MS * 1000);
    }
    if (rc == CTL_EXIT_OK && is_old && leave_epoch(v))
        rc = begin_epoch(v, e);
    return rc;
}

static void report_job_end(const struct log_view *v)
{
    size_t open = count_open_ranks(v);

    if (open > 0)
        log_warn("the job has ended; the last output of %zu rank%s may be missing",
                 open, open == 1 ? "" : "s");
    else
        log_info("the job has ended");
}

/* rc: of what was asked first. */
static int follow_all(struct log_view *v, int rc, struct err *e)
{
    while (!ferror(stdout) && rc == CTL_EXIT_OK) {
        rc = follow_once(v, e);
        if (rc == CTL_EXIT_UNREACHABLE) /* maybe after all has been shown */
            rc = count_open_ranks(v) > 0 ? resume_view(v, e) : CTL_EXIT_REFUSED;
    }
    log_view_finish_lines(v);
    if (rc != CTL_EXIT_REFUSED)
        return rc;
    fflush(stdout);
    report_job_end(v);
    return CTL_EXIT_OK;
}

/* Up to where the output was at first. */
static int show_rest(struct log_view *v, struct err *e)
{
    int rc = CTL_EXIT_OK;

    while (count_open_ranks(v) > 0 && rc == CTL_EXIT_OK && !ferror(stdout)) {
        rc = ask_next_pieces(v, false, e);
        if (!v->has_text)
            break;
    }
    return rc;
}

static void warn_unknown_ranks(struct log_view *v)
{
    struct rank_ranges unknown = { .count = 0 };
    char text[256];

    for (unsigned i = 0; i < v->wanted.count; i++)
        for (uint64_t r = v->wanted.range[i].first; r <= v->wanted.range[i].last; r++)
            if (!log_view_find_rank(v, (uint32_t)r))
                rank_ranges_add(&unknown, (uint32_t)r, (uint32_t)r);
    if (unknown.count > 0)
        log_warn("nothing is known of %s",
                 rank_ranges_describe(&unknown, text, sizeof(text)));
    rank_ranges_fini(&unknown);
}

static int cmd_logs_run(struct ctl_client *c, const struct ctl_options *o,
                        const char *word, struct err *e)
{
    struct log_view v = { .c = c, .o = o };
    int rc;

    if (ctl_ranks_parse(o, &v.wanted, e) < 0)
        return CTL_EXIT_USAGE;
    v.prefix = rank_ranges_size(&v.wanted) > 1;
    rc = show_first(&v, true, e);
    if (rc == CTL_EXIT_OK)
        warn_unknown_ranks(&v);
    if (o->follow && (rc == CTL_EXIT_OK || v.epoch))
        rc = follow_all(&v, rc, e);
    else if (rc == CTL_EXIT_OK)
        rc = show_rest(&v, e);
    log_view_forget_ranks(&v);
    free(v.rank);
    rank_ranges_fini(&v.wanted);
    if (v.owns_client)
        ctl_client_close(v.c);
    return rc;
}

static const struct opt table[] = {
    { .name = "follow",
      .letter = 'f',
      .help = "Continue with new output, also after restarts, until the job ends.",
      .set = opt_set_true,
      .offset = offsetof(struct ctl_options, follow) },
    { .name = "tail",
      .letter = 'n',
      .arg = "N",
      .help = "Begin N lines before the end of each rank's output. Default: with all "
              "that is kept.",
      .set = opt_set_int,
      .offset = offsetof(struct ctl_options, tail),
      .min = 0,
      .max = INT_MAX },
    { .name = "stdout",
      .help = "Only standard output.",
      .set = opt_set_true,
      .offset = offsetof(struct ctl_options, only_stdout) },
    { .name = "stderr",
      .help = "Only standard error.",
      .set = opt_set_true,
      .offset = offsetof(struct ctl_options, only_stderr) },
    CTL_JSON_FLAG("Print each line as a line of JSON."),
    CTL_COMMON_FLAGS,
    { .name = NULL },
};

const struct ctl_command ctl_logs = {
    .name = "logs",
    .words = "[RANK...]",
    .takes_job = true,
    .ranks_follow = true,
    .summary = "show the output of the ranks",
    .table = table,
    .access = ACCESS_OPERATE,
    .run = cmd_logs_run,
    .run_ended = ended_logs_show,
};
