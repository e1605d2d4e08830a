/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ctl_views.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/crunctl/ctl_client.h"
#include "launcher/crunctl/ctl_jobs.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/json_strict.h"
#include "rendezvous/wire/protocol/limits.h"
#include "rendezvous/wire/protocol/proto_fields.h"
#include "rendezvous/wire/protocol/proto_words.h"

#define HISTORY_BYTES_MAX (1u << 20) /* of one job: more than a rendezvous keeps */

/* -- requests --------------------------------------------------------------------- */

struct job_names {
    const struct ctl_jobs *local; /* left out: they are shown already; NULL: none */
    char (*run_id)[RUN_ID_MAX + 1];
    size_t count;
};

static bool is_local_job(const struct ctl_jobs *local, const struct msg_job_status *s)
{
    char instance[ID128_HEX_SIZE];

    id128_format(&s->instance, instance);
    for (size_t i = 0; local && i < local->count; i++)
        if (strcmp(local->job[i].instance, instance) == 0)
            return true;
    return false;
}

static void on_job_name(void *arg, const struct msg *m)
{
    struct job_names *names = arg;

    if (m->type != MSG_JOB_STATUS || is_local_job(names->local, &m->job_status))
        return;
    names->run_id = xrealloc(names->run_id,
                             (names->count + 1) * sizeof(*names->run_id));
    memcpy(names->run_id[names->count++], m->job_status.run_id, RUN_ID_MAX + 1);
}

static void on_job_detail(void *arg, const struct msg *m)
{
    if (m->type == MSG_JOB_STATUS)
        job_views_add(arg, &m->job_status);
    else if (m->type == MSG_NODE_STATUS)
        job_views_add_node(arg, &m->node_status);
}

/* Asks for all pages of one list. */
static int ask_pages(struct ctl_client *c, const char *run_id, ctl_answer_fn *fn,
                     void *arg, struct err *e)
{
    struct msg m = { .type = MSG_STATUS };

    snprintf(m.status.run_id, sizeof(m.status.run_id), "%s", run_id);
    return ctl_client_ask_pages(c, &m, fn, arg, e);
}

/* -- the past ---------------------------------------------------------------------- */

struct past_answer {
    struct msg_job_status status;
    bool has_status;
    char *text; /* of all pieces */
    size_t size;
};

static void on_past_piece(void *arg, const struct msg *m)
{
    struct past_answer *a = arg;
    size_t size = m->type == MSG_HISTORY ? strlen(m->history.text) : 0;

    if (m->type == MSG_JOB_STATUS) {
        a->status = m->job_status;
        a->has_status = true;
    }
    if (size == 0 || a->size + size > HISTORY_BYTES_MAX)
        return;
    a->text = xrealloc(a->text, a->size + size + 1);
    memcpy(a->text + a->size, m->history.text, size + 1);
    a->size += size;
}

/* The history of a job that the rendezvous knows, or has known. */
static int ask_past(struct ctl_client *c, const char *run_id, struct past_answer *a,
                    cJSON **history, struct err *e)
{
    struct msg m = { .type = MSG_SHOW_HISTORY };
    int rc;

    *history = NULL;
    snprintf(m.show_history.run_id, sizeof(m.show_history.run_id), "%s", run_id);
    rc = ctl_client_ask(c, &m, on_past_piece, a, NULL, e);
    if (rc == CTL_EXIT_OK && a->text &&
        json_check(a->text, a->size, JSON_DEPTH_MAX, e) == 0)
        *history = cJSON_ParseWithLength(a->text, a->size);
    free(a->text);
    return rc;
}

int ctl_views_ask_history(struct ctl_client *c, struct job_view *job, struct err *e)
{
    struct past_answer a = { .size = 0 };
    cJSON *history;
    int rc = ask_past(c, job->status.run_id, &a, &history, e);

    cJSON_Delete(job->history);
    job->history = history;
    return rc;
}

/* A job that is over. */
static int ask_past_job(struct ctl_client *c, const char *run_id, struct job_views *v,
                        struct err *e)
{
    struct past_answer a = { .size = 0 };
    cJSON *history;
    int rc = ask_past(c, run_id, &a, &history, e);

    if (rc == CTL_EXIT_OK && a.has_status)
        job_views_add(v, &a.status)->history = history;
    else
        cJSON_Delete(history);
    return rc;
}

int ctl_views_ask_job(struct ctl_client *c, const char *run_id, struct job_views *v,
                      struct err *e)
{
    int rc = ask_pages(c, run_id, on_job_detail, v, e);
    struct err past;

    if (rc != CTL_EXIT_REFUSED)
        return rc;
    return ask_past_job(c, run_id, v, &past) == CTL_EXIT_OK ? CTL_EXIT_OK : rc;
}

struct past_list {
    const struct ctl_jobs *local;
    struct job_views *views;
};

static void on_past_job(void *arg, const struct msg *m)
{
    struct past_list *l = arg;

    if (m->type == MSG_JOB_STATUS && !is_local_job(l->local, &m->job_status))
        job_views_add(l->views, &m->job_status);
}

int ctl_views_ask_all(struct ctl_client *c, const struct ctl_jobs *local,
                      bool with_past, struct job_views *v, struct err *e)
{
    struct msg ask_past = { .type = MSG_SHOW_HISTORY };
    struct past_list past = { local, v };
    struct job_names names = { .local = local };
    int rc = ask_pages(c, "", on_job_name, &names, e);

    for (size_t i = 0; i < names.count && rc == CTL_EXIT_OK; i++)
        rc = ask_pages(c, names.run_id[i], on_job_detail, v, e);
    free(names.run_id);
    if (rc == CTL_EXIT_OK && with_past)
        rc = ctl_client_ask_pages(c, &ask_past, on_past_job, &past, e);
    return rc;
}

/* -- the jobs of this machine ----------------------------------------------------- */

static uint64_t ms_since(uint64_t wall_ms)
{
    uint64_t now = clock_wall_ms();

    return wall_ms && now > wall_ms ? now - wall_ms : 0;
}

/* A job that is known from its record only. */
static struct job_view *add_local_job(struct job_views *v, const struct ctl_job *job)
{
    struct msg_job_status s = { .exit_code = job->exit_code,
                                .max_nodes = job->nodes,
                                .age_ms = ms_since(job->started_ms) };
    struct job_view *view;

    snprintf(s.run_id, sizeof(s.run_id), "%s", job->run_id);
    snprintf(s.program, sizeof(s.program), "%s", job->program);
    snprintf(s.text, sizeof(s.text), "%s", job->text);
    view = job_views_add(v, &s);
    snprintf(view->name, sizeof(view->name), "%s", job->name);
    view->pid = *job->command ? 0 : (uint32_t)job->pid; /* of no process here */
    return view;
}

/* As job_json_add_phases has written it. */
static void read_phases(const cJSON *record, const char *name, struct msg_job_time *t)
{
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(record, name);

    *t = (struct msg_job_time){
        .productive_ms = ctl_record_number(o, "productive_ms", INT64_MAX),
        .detect_ms = ctl_record_number(o, "detect_ms", INT64_MAX),
        .stop_ms = ctl_record_number(o, "stop_ms", INT64_MAX),
        .form_ms = ctl_record_number(o, "form_ms", INT64_MAX),
        .start_ms = ctl_record_number(o, "start_ms", INT64_MAX),
        .first_step_ms = ctl_record_number(o, "first_step_ms", INT64_MAX),
        .rework_ms = ctl_record_number(o, "rework_ms", INT64_MAX),
        .steps_again = ctl_record_number(o, "steps_again", INT64_MAX),
        .unplaced = cJSON_IsNull(
            cJSON_GetObjectItemCaseSensitive(o, "productive_ms"))
    };
    if (t->unplaced)
        t->productive_ms = ctl_record_number(o, "ran_ms", INT64_MAX);
}

void ctl_views_add_ended(struct job_views *v, const struct ctl_job *job)
{
    static const char *const odd[] = { "left", "lost", "killed" };
    struct job_view *view = add_local_job(v, job);
    struct msg_job_status *s = &view->status;
    const cJSON *result = cJSON_GetObjectItemCaseSensitive(job->record, "result");

    s->state = JOB_DONE;
    s->exit_code = job->state == CTL_JOB_KILLED ? -1 : job->exit_code; /* -1: none */
    s->state_ms = ms_since(job->ended_ms);
    s->restarts = (uint32_t)ctl_record_number(result, "restarts", UINT32_MAX);
    s->max_restarts = (uint32_t)ctl_record_number(result, "max_restarts", UINT32_MAX);
    s->epoch = ctl_record_number(result, "epoch", INT64_MAX);
    s->reason = (enum job_reason)proto_word(proto_reason_names, JOB_REASON_COUNT,
                                            job->reason);
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
        if (strcmp(job->result, odd[i]) == 0)
            view->odd_state = odd[i];
    if (strcmp(job->result, "not-formed") == 0)
        s->reason = JOB_REASON_NOT_FORMED;
    view->is_silent = job->state == CTL_JOB_KILLED;
    read_phases(job->record, "time", &s->time);
    read_phases(job->record, "last_restart", &s->last_restart);
    if (*job->report)
        view->report = xstrdup(job->report);
}

void ctl_views_ask_running(struct job_views *v, struct ctl_client *c,
                           const struct ctl_job *job, uint64_t until_ms)
{
    struct job_views own = { .count = 0 };
    struct job_view *view;
    struct err e;
    int rc = c ? ctl_client_await_welcome(c, until_ms, &e) : CTL_EXIT_UNREACHABLE;
    uint64_t now = clock_ms();
    bool suspended = rc != CTL_EXIT_OK && ctl_job_is_suspended(job, &e);

    if (rc == CTL_EXIT_OK) {
        ctl_client_set_timeout(c,
                               until_ms > now ? until_ms - now : CTL_LOCAL_ANSWER_MS);
        rc = ask_pages(c, job->run_id, on_job_detail, &own, &e);
    }
    if (rc == CTL_EXIT_OK && own.count > 0) {
        job_views_move(v, &own);
        view = &v->job[v->count - 1];
        view->pid = *job->command ? 0 : (uint32_t)job->pid;
        snprintf(view->name, sizeof(view->name), "%s", job->name);
    } else {
        view = add_local_job(v, job);
        view->odd_state = suspended ? "suspended" : job->unknown ? "unknown" : "silent";
        view->is_silent = true;
        snprintf(view->status.text, sizeof(view->status.text), "%s",
                 suspended || rc == CTL_EXIT_REFUSED ? e.text
                 : job->unknown                      ? job->unknown
                                                     : "its crun does not answer");
    }
    job_views_clear(&own);
}
