/* SPDX-License-Identifier: MIT */
#include "agent/interface/job_messages.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/interface/status_line.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/job_name.h"
#include "rendezvous/wire/protocol/limits.h"
#include "rendezvous/wire/protocol/proto.h"

#define WAITING_FIRST_MS 5000
#define SPARE_REPORT_MS 500
#define WAITING_AGAIN_MS 30000
#define SLOW_STOP_MS 1000 /* longer stops get a message */

struct job_messages {
    const struct config *config;
    char job[JOB_NAME_SIZE + 8];
    struct status_line *status_line;
    bool stopping;
    bool has_said_ended_by;
    uint32_t alive;
    bool running;
    struct msg_start start; /* while an epoch runs */
    uint64_t epoch, began_ms;
    uint64_t stop_began_ms, stop_ends_ms, cause_epoch;
    uint64_t waiting_since_ms, waiting_reported_ms;
    char refused[NOTICE_MAX_BYTES + 1]; /* the last one reported */
    struct loop_timer countdown;
    char unreached[ERROR_TEXT_MAX_BYTES + 1]; /* why the rendezvous was not reached */
    uint64_t tried_since_ms;
    struct loop_timer unreached_timer;
    struct loop_timer spare_timer;
    struct loop_timer outage_timer; /* an outage is not reported yet */
};

/* "2 workers"; of the whole job if it has several nodes: "3 workers on 3 nodes". */
static const char *describe_stopped(const struct job_messages *s, char *buf,
                                    size_t size)
{
    if (s->start.group_size > 1)
        snprintf(buf, size, "%" PRIu32 " worker%s on %" PRIu32 " nodes",
                 s->start.world_size, text_plural(s->start.world_size),
                 s->start.group_size);
    else
        snprintf(buf, size, "%" PRIu32 " worker%s", s->alive, text_plural(s->alive));
    return buf;
}

static void show_countdown(void *arg)
{
    struct job_messages *s = arg;
    uint64_t now = clock_ms();
    uint64_t left = s->stop_ends_ms > now ? s->stop_ends_ms - now : 0;
    char line[128], what[64];

    snprintf(line, sizeof(line),
             "%.32s: stopping %s, %" PRIu64 " s to finish (Ctrl-C again to kill)",
             log_program(), describe_stopped(s, what, sizeof(what)),
             (left + 999) / 1000);
    status_line_set_urgent(s->status_line, line);
    if (left)
        loop_timer_arm(&s->countdown, now + 1000);
}

/* A node that is taken in soon was no spare. */
static void report_spare(void *arg)
{
    const struct job_messages *s = arg;

    log_info("this node waits as a spare of %s", s->job);
}

static void report_unreached(void *arg)
{
    struct job_messages *s = arg;
    uint64_t now = clock_ms(), end = s->tried_since_ms + s->config->job.join_timeout_ms;

    log_info("waiting for the rendezvous (%s) · %" PRIu64 " s left", s->unreached,
             end > now ? (end - now + 999) / 1000 : 0);
    loop_timer_arm(&s->unreached_timer, now + WAITING_AGAIN_MS);
}

void job_messages_unreached(struct job_messages *s, bool out, const char *why)
{
    if (!out || !job_messages_cover_rendezvous(s)) {
        loop_timer_cancel(&s->unreached_timer);
        return;
    }
    snprintf(s->unreached, sizeof(s->unreached), "%s", why);
    if (!s->unreached_timer.armed)
        loop_timer_arm(&s->unreached_timer, clock_ms() + WAITING_FIRST_MS);
}

static void report_outage(void *arg)
{
    log_warn("the rendezvous is out of reach (%s): workers continue, trying again",
             ((struct job_messages *)arg)->unreached);
}

struct job_messages *job_messages_create(struct loop *loop, const struct config *config,
                                         struct status_line *status_line)
{
    struct job_messages *s = xcalloc(1, sizeof(*s));
    char name[JOB_NAME_SIZE];

    s->status_line = status_line;
    s->config = config;
    if (config->rendezvous == CONFIG_LOCAL)
        snprintf(s->job, sizeof(s->job), "the job"); /* there is no other */
    else
        snprintf(s->job, sizeof(s->job), "job \"%s\"",
                 job_name(config->run_id, config->job.program, name, sizeof(name)));
    s->tried_since_ms = clock_ms();
    loop_timer_init(&s->countdown, loop, show_countdown, s);
    loop_timer_init(&s->unreached_timer, loop, report_unreached, s);
    loop_timer_init(&s->outage_timer, loop, report_outage, s);
    loop_timer_init(&s->spare_timer, loop, report_spare, s);
    return s;
}

void job_messages_destroy(struct job_messages *s)
{
    if (!s)
        return;
    loop_timer_fini(&s->countdown);
    loop_timer_fini(&s->unreached_timer);
    loop_timer_fini(&s->outage_timer);
    loop_timer_fini(&s->spare_timer);
    free(s);
}

const char *job_messages_job(const struct job_messages *s)
{
    return s->job;
}

bool job_messages_are_first_nodes(const struct job_messages *s)
{
    bool is_first = s->start.world_size ? s->start.group_rank == 0
                                        : s->config->node_rank <= 0;

    return s->config->shares_output && !is_first;
}

bool job_messages_cover_rendezvous(const struct job_messages *s)
{
    bool is_early = s->start.world_size ? s->start.group_rank <= 1
                                        : s->config->node_rank <= 1;

    return !s->config->shares_output || is_early;
}

void job_messages_formed(struct job_messages *s, const struct msg_start *start,
                         uint64_t epoch)
{
    const char *nodes = start->group_size == 1 ? "node" : "nodes";

    s->waiting_since_ms = s->waiting_reported_ms = 0;
    loop_timer_cancel(&s->spare_timer);
    s->running = true;
    s->start = *start;
    s->epoch = epoch;
    s->began_ms = s->began_ms ? s->began_ms : clock_ms();
    if (job_messages_are_first_nodes(s))
        return;
    if (epoch > 1 && start->cause == JOB_CAUSE_FAILURE)
        log_info("restart %" PRIu32 " of %" PRIu32 ": epoch %" PRIu64
                 " formed, %" PRIu32 " worker%s on %" PRIu32 " %s",
                 start->restarts, start->max_restarts, epoch, start->world_size,
                 text_plural(start->world_size), start->group_size, nodes);
    else if (epoch > 1)
        log_info("re-formed (%s): epoch %" PRIu64 ", %" PRIu32 " worker%s on %" PRIu32
                 " %s",
                 proto_cause_name(start->cause), epoch, start->world_size,
                 text_plural(start->world_size), start->group_size, nodes);
    else if (s->config->job.max_nodes > 1)
        log_info("%s formed: %" PRIu32 " %s, %" PRIu32
                 " worker%s, this is node %" PRIu32 " (epoch %" PRIu64 ")",
                 s->job, start->group_size, nodes, start->world_size,
                 text_plural(start->world_size), start->group_rank, epoch);
}

void job_messages_joined(struct job_messages *s, const struct msg_joined *joined)
{
    if (joined->spare && !s->running)
        loop_timer_arm(&s->spare_timer, clock_ms() + SPARE_REPORT_MS);
}

void job_messages_cause(struct job_messages *s, const struct msg_stop *stop,
                        uint64_t epoch)
{
    if (epoch != s->cause_epoch && !stop->last && stop->cause != JOB_CAUSE_USER &&
        !job_messages_are_first_nodes(s))
        log_info("%s", stop->text);
    s->cause_epoch = epoch;
}

void job_messages_ended_by(struct job_messages *s, const char *text)
{
    if (!s->has_said_ended_by && *text && !job_messages_are_first_nodes(s))
        log_info("%s was %s", s->job, text);
    s->has_said_ended_by = true;
}

void job_messages_stopping(struct job_messages *s, const struct msg_stop *stop,
                           uint32_t alive)
{
    bool by_user = stop->cause == JOB_CAUSE_USER;
    char what[64];

    s->running = false;
    s->alive = alive;
    s->stop_ends_ms = clock_ms() + stop->grace_ms;
    if (s->stopping)
        return;
    s->stopping = true;
    s->stop_began_ms = clock_ms();
    if (!by_user || alive == 0 || job_messages_are_first_nodes(s))
        return;
    if (status_line_is_shown(s->status_line))
        show_countdown(s);
    else
        log_info("stopping %s, %" PRIu32 " s to finish",
                 describe_stopped(s, what, sizeof(what)), stop->grace_ms / 1000);
}

void job_messages_stopped(struct job_messages *s)
{
    uint64_t took = clock_ms() - s->stop_began_ms;

    loop_timer_cancel(&s->countdown);
    status_line_set_urgent(s->status_line, "");
    if (s->stopping && took >= SLOW_STOP_MS && !job_messages_are_first_nodes(s))
        log_info("%" PRIu32 " worker%s stopped in %.1f s", s->alive,
                 text_plural(s->alive), (double)took / 1000);
    s->stopping = false;
}

/* Each line fits into 80 columns, unless names are long. */
static void say_waiting(struct job_messages *s, const struct msg_beat *beat, bool where)
{
    const char *at = s->config->endpoints ? s->config->endpoints : "inside";

    log_info("waiting for nodes: %" PRIu32 " of %" PRIu32 " joined%s%s%s · %s%" PRIu64
             " s%s",
             beat->present, beat->wanted, *beat->missing ? " (missing: rank " : "",
             beat->missing, *beat->missing ? ")" : "",
             beat->present < s->config->job.min_nodes ? "" : "starts in ",
             beat->left_ms / 1000,
             beat->present < s->config->job.min_nodes ? " left" : "");
    /* such as the default of --master-addr */
    if (where && at &&
        (strncmp(at, "127.", 4) == 0 || strncmp(at, "[::1]", 5) == 0 ||
         strncmp(at, "localhost", 9) == 0))
        log_info("rendezvous %s is loopback: other machines cannot connect", at);
    else if (where)
        log_info("rendezvous %s", at);
    if (where && !s->config->under_slurm && !s->config->shares_output)
        log_info("start the same command on each missing node%s%s",
                 *beat->missing ? ", with --node-rank " : "", beat->missing);
    if (*beat->refused)
        log_info("%s", beat->refused);
}

void job_messages_waiting(struct job_messages *s, const struct msg_beat *beat)
{
    uint64_t now = clock_ms();
    bool refused = *beat->refused && strcmp(beat->refused, s->refused) != 0;

    if (beat->present >= beat->wanted && !refused)
        return; /* no node is missing */
    if (job_messages_are_first_nodes(s))
        return;
    if (!s->waiting_since_ms)
        s->waiting_since_ms = s->epoch ? now : s->tried_since_ms; /* beats are rare */
    if (!refused &&
        (now - s->waiting_since_ms < WAITING_FIRST_MS ||
         (s->waiting_reported_ms && now - s->waiting_reported_ms < WAITING_AGAIN_MS)))
        return;
    memcpy(s->refused, beat->refused, sizeof(s->refused));
    say_waiting(s, beat, !s->waiting_reported_ms);
    s->waiting_reported_ms = now;
}

static int append_item(char *buf, size_t size, int at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Appends an item, after a dot unless it is the first. Returns the new length. */
static int append_item(char *buf, size_t size, int at, const char *format, ...)
{
    va_list args;
    int n = at;

    if ((size_t)n + 4 >= size)
        return at;
    if (at)
        n += snprintf(buf + n, size - (size_t)n, " · ");
    else
        n += snprintf(buf + n, size - (size_t)n, "%.32s: ", log_program());
    va_start(args, format);
    n += vsnprintf(buf + n, size - (size_t)n, format, args);
    va_end(args);
    return (size_t)n < size ? n : (int)size - 1;
}

char *job_messages_status(const struct job_messages *s, const struct msg_heartbeat *p,
                          char *buf, size_t size)
{
    const struct msg_start *m = &s->start;
    char age[32];
    int n = 0;

    *buf = '\0';
    if (!s->running || (s->config->job.max_nodes == 1 && p->step == 0))
        return buf;
    n = append_item(buf, size, n, "%" PRIu32 " node%s, %" PRIu32 " worker%s",
                    m->group_size, text_plural(m->group_size), m->world_size,
                    text_plural(m->world_size));
    if (s->epoch > 1)
        n = append_item(buf, size, n, "epoch %" PRIu64, s->epoch);
    if (m->max_restarts)
        n = append_item(buf, size, n, "%" PRIu32 " of %" PRIu32 " restarts used",
                        m->restarts, m->max_restarts);
    if (p->step)
        n = append_item(buf, size, n, "step %" PRIu64, p->step);
    if (*p->steps_per_s)
        n = append_item(buf, size, n, "%s steps/s", p->steps_per_s);
    if (*p->loss)
        n = append_item(buf, size, n, "loss %s", p->loss);
    append_item(buf, size, n, "%s",
                clock_format_duration(clock_ms() - s->began_ms, age, sizeof(age)));
    return buf;
}

void job_messages_outage(struct job_messages *s, bool out, const char *why,
                         uint32_t after_ms)
{
    if (out) {
        snprintf(s->unreached, sizeof(s->unreached), "%s", why);
        if (after_ms == 0)
            report_outage(s);
        else if (!s->outage_timer.armed)
            loop_timer_arm(&s->outage_timer, clock_ms() + after_ms);
    } else if (s->outage_timer.armed) {
        loop_timer_cancel(&s->outage_timer);
    } else {
        log_info("the rendezvous is back");
    }
}

void job_messages_abandoned(struct job_messages *s)
{
    loop_timer_cancel(&s->outage_timer);
}
