/* SPDX-License-Identifier: MIT */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/crunctl/ctl_client.h"
#include "launcher/crunctl/ctl_jobs.h"
#include "launcher/crunctl/text_table.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/text.h"
#include "rendezvous/protocol/job_name.h"
#include "rendezvous/protocol/proto.h"

/* crunctl status: the jobs of a rendezvous and the nodes of each, as a table or as
 * JSON. */
struct status {
    const struct ctl_options *options;
    const struct ctl_jobs *local; /* shown already; NULL: none */
    struct job_list {
        char run_id[RUN_ID_MAX + 1];
        struct job_list *next;
    } * jobs, **tail;
    struct text_table *table; /* of the job being shown */
    cJSON *array;             /* of all jobs */
    cJSON *nodes;             /* of the job being shown */
};

static const char *const headings[] = { "NODE",      "SLOT",        "RANKS", "STATE",
                                        "HEARTBEAT", "CONTAINMENT", "STEP",  "STEPS/S",
                                        "LOSS",      "GPU",         "MEM",   "PID",
                                        "ADDRESS",   "NOTE",        NULL };

/* -- tables ----------------------------------------------------------------------- */

static void print_job_result(const struct msg_job_status *s)
{
    char age[32], text[2 * sizeof(s->text)];

    if (s->state == JOB_DONE)
        printf("   %s, exit code %" PRId32 ": %s", proto_reason_name(s->reason),
               s->exit_code, text_printable(s->text, text, sizeof(text)));
    else if (s->state == JOB_FORMING)
        printf("   %" PRIu32 " of %" PRIu32 " nodes for %s", s->nodes,
               s->nodes < s->min_nodes ? s->min_nodes : s->max_nodes,
               clock_format_duration(s->state_ms, age, sizeof(age)));
    else if (s->state == JOB_STOPPING)
        printf("   stopping for %s (%s)",
               clock_format_duration(s->state_ms, age, sizeof(age)),
               proto_cause_name(s->cause));
}

static void print_job(const struct msg_job_status *s)
{
    bool done = s->state == JOB_DONE;
    char age[32], text[2 * sizeof(s->text)], name[JOB_NAME_SIZE];

    printf("job %s   %s   epoch %" PRIu64,
           job_name(s->run_id, s->program, name, sizeof(name)),
           proto_state_name(s->state), s->epoch);
    if (s->state == JOB_RUNNING)
        printf("   %" PRIu32 " worker%s on %" PRIu32 " node%s", s->workers,
               text_plural(s->workers), s->nodes, text_plural(s->nodes));
    if (s->spares)
        printf(" (+%" PRIu32 " spare%s)", s->spares, text_plural(s->spares));
    print_job_result(s);
    clock_format_duration(done ? s->state_ms : s->age_ms, age, sizeof(age));
    printf(done ? "   ended %s ago" : "   up %s", age);
    printf("   restarts %" PRIu32 " of %" PRIu32 "\n", s->restarts, s->max_restarts);
    if (*s->notice)
        printf("%s\n", text_printable(s->notice, text, sizeof(text)));
    if (!done && s->failure.kind != FAILURE_NONE)
        printf("last failure: %s\n", text_printable(s->text, text, sizeof(text)));
}

static void print_ranks(struct text_table *t, const struct msg_node_status *s)
{
    if (s->group_rank < 0)
        text_table_cell(t, "-");
    else if (s->workers == 1)
        text_table_cell(t, "%" PRIu32, s->first_rank);
    else
        text_table_cell(t, "%" PRIu32 "-%" PRIu32, s->first_rank,
                        s->first_rank + s->workers - 1);
}

/* Two cells: the load of the GPUs, and the memory used on the fullest one. */
static void print_gpus(struct text_table *t, const struct msg_gpus *g)
{
    if (g->count && g->percent >= 0)
        text_table_cell(t, "%" PRId32 "%%", g->percent);
    else
        text_table_cell(t, "-");
    if (g->total_mib)
        text_table_cell(t, "%.*fG", g->used_mib < 10 * 1024, g->used_mib / 1024.0);
    else
        text_table_cell(t, "-");
}

static void add_row(struct text_table *t, const struct msg_node_status *s)
{
    char heard[32];

    text_table_cell(t, "%s", s->host);
    text_table_cell(t, s->slot < 0 ? "-" : "%" PRId32, s->slot);
    print_ranks(t, s);
    text_table_cell(t, "%s", proto_node_state_name(s->state));
    text_table_cell(t, "%s%s", clock_format_duration(s->heard_ms, heard, sizeof(heard)),
                    s->connected ? "" : " (away)");
    text_table_cell(t, "%s", s->containment);
    text_table_cell(t, s->progress.step ? "%" PRIu64 : "-", s->progress.step);
    text_table_cell(t, "%s", s->progress.steps_per_s);
    text_table_cell(t, "%s", s->progress.loss);
    print_gpus(t, &s->progress.gpus);
    text_table_cell(t, s->pid ? "%" PRIu32 : "-", s->pid);
    text_table_cell(t, "%s", s->address);
    text_table_cell(t, "%s", s->progress.note);
}

/* -- JSON ------------------------------------------------------------------------- */

static void add_json_number(cJSON *o, const char *name, uint64_t value)
{
    cJSON_AddNumberToObject(o, name, (double)value);
}

static void add_failure(cJSON *o, const struct failure *f)
{
    if (f->kind == FAILURE_NONE)
        return;
    o = cJSON_AddObjectToObject(o, "failure");
    cJSON_AddStringToObject(o, "kind", proto_failure_kind_name(f->kind));
    cJSON_AddStringToObject(o, "host", f->host);
    cJSON_AddNumberToObject(o, "rank", f->rank);
    cJSON_AddNumberToObject(o, "local_rank", f->local_rank);
    cJSON_AddNumberToObject(o, "pid", f->pid);
    cJSON_AddNumberToObject(o, "code", f->code);
    add_json_number(o, "time_ms", f->wall_ms);
    cJSON_AddStringToObject(o, "said", f->said);
    cJSON_AddStringToObject(o, "log", f->log);
}

static cJSON *job_object(const struct msg_job_status *s)
{
    cJSON *o = cJSON_CreateObject();
    char instance[ID128_HEX_SIZE], name[JOB_NAME_SIZE];

    cJSON_AddStringToObject(o, "job", s->run_id);
    cJSON_AddStringToObject(o, "name",
                            job_name(s->run_id, s->program, name, sizeof(name)));
    cJSON_AddStringToObject(o, "state", proto_state_name(s->state));
    cJSON_AddStringToObject(o, "cause", proto_cause_name(s->cause));
    cJSON_AddStringToObject(o, "result", proto_reason_name(s->reason));
    cJSON_AddStringToObject(o, "text", s->text);
    cJSON_AddStringToObject(o, "notice", s->notice);
    cJSON_AddStringToObject(o, "program", s->program);
    cJSON_AddStringToObject(o, "instance", id128_format(&s->instance, instance));
    add_json_number(o, "epoch", s->epoch);
    cJSON_AddNumberToObject(o, "node_count", s->nodes);
    cJSON_AddNumberToObject(o, "spare_count", s->spares);
    cJSON_AddNumberToObject(o, "worker_count", s->workers);
    cJSON_AddNumberToObject(o, "min_nodes", s->min_nodes);
    cJSON_AddNumberToObject(o, "max_nodes", s->max_nodes);
    cJSON_AddNumberToObject(o, "restarts", s->restarts);
    cJSON_AddNumberToObject(o, "max_restarts", s->max_restarts);
    cJSON_AddNumberToObject(o, "exit_code", s->exit_code);
    add_json_number(o, "age_ms", s->age_ms);
    add_json_number(o, "state_ms", s->state_ms);
    add_failure(o, &s->failure);
    return o;
}

static void add_gpus(cJSON *o, const struct msg_gpus *g)
{
    if (g->count == 0)
        return;
    o = cJSON_AddObjectToObject(o, "gpus");
    cJSON_AddNumberToObject(o, "count", g->count);
    if (g->percent >= 0)
        cJSON_AddNumberToObject(o, "percent", g->percent);
    cJSON_AddNumberToObject(o, "used_mib", g->used_mib);
    cJSON_AddNumberToObject(o, "total_mib", g->total_mib);
    cJSON_AddNumberToObject(o, "celsius", g->celsius);
    cJSON_AddNumberToObject(o, "watts", g->watts);
}

static cJSON *node_object(const struct msg_node_status *s)
{
    cJSON *o = cJSON_CreateObject();

    cJSON_AddStringToObject(o, "host", s->host);
    cJSON_AddStringToObject(o, "address", s->address);
    cJSON_AddNumberToObject(o, "pid", s->pid);
    cJSON_AddStringToObject(o, "state", proto_node_state_name(s->state));
    cJSON_AddBoolToObject(o, "connected", s->connected);
    cJSON_AddNumberToObject(o, "slot", s->slot);
    cJSON_AddNumberToObject(o, "group_rank", s->group_rank);
    cJSON_AddNumberToObject(o, "first_rank", s->first_rank);
    cJSON_AddNumberToObject(o, "workers", s->workers);
    add_json_number(o, "heard_ms_ago", s->heard_ms);
    cJSON_AddStringToObject(o, "containment", s->containment);
    add_json_number(o, "step", s->progress.step);
    cJSON_AddStringToObject(o, "steps_per_s", s->progress.steps_per_s);
    cJSON_AddStringToObject(o, "loss", s->progress.loss);
    cJSON_AddStringToObject(o, "note", s->progress.note);
    add_gpus(o, &s->progress.gpus);
    return o;
}

/* -- requests --------------------------------------------------------------------- */

static bool is_shown_already(const struct status *s, const struct msg_job_status *job)
{
    char instance[ID128_HEX_SIZE];

    id128_format(&job->instance, instance);
    for (size_t i = 0; s->local && i < s->local->count; i++)
        if (strcmp(s->local->job[i].instance, instance) == 0)
            return true;
    return false;
}

static void on_job_name(void *arg, const struct msg *m)
{
    struct status *s = arg;

    if (m->type != MSG_JOB_STATUS || is_shown_already(s, &m->job_status))
        return;
    *s->tail = calloc(1, sizeof(**s->tail));
    if (!*s->tail)
        return;
    memcpy((*s->tail)->run_id, m->job_status.run_id, sizeof((*s->tail)->run_id));
    s->tail = &(*s->tail)->next;
}

static void on_detail(void *arg, const struct msg *m)
{
    struct status *s = arg;

    if (m->type == MSG_JOB_STATUS && s->array) {
        cJSON *job = job_object(&m->job_status);

        cJSON_AddItemToArray(s->array, job);
        s->nodes = cJSON_AddArrayToObject(job, "nodes");
    } else if (m->type == MSG_JOB_STATUS) {
        print_job(&m->job_status);
    } else if (m->type == MSG_NODE_STATUS && s->array) {
        cJSON_AddItemToArray(s->nodes, node_object(&m->node_status));
    } else if (m->type == MSG_NODE_STATUS) {
        if (!s->table)
            s->table = text_table_create(headings);
        add_row(s->table, &m->node_status);
    }
}

/* Asks for all pages of one list. */
static int ask_pages(struct ctl_client *c, const char *run_id, ctl_answer_fn *fn,
                     struct status *s, struct err *e)
{
    struct msg m = { .type = MSG_STATUS };
    uint64_t next = 0;
    int rc;

    snprintf(m.status.run_id, sizeof(m.status.run_id), "%s", run_id);
    do {
        m.status.from = (uint32_t)next;
        rc = ctl_client_ask(c, &m, fn, s, &next, e);
    } while (rc == CTL_EXIT_OK && next);
    return rc;
}

static int show_job(struct ctl_client *c, const char *run_id, struct status *s,
                    struct err *e)
{
    int rc = ask_pages(c, run_id, on_detail, s, e);

    if (s->table)
        text_table_print(s->table, stdout);
    text_table_destroy(s->table);
    s->table = NULL;
    return rc;
}

static int show_all(struct ctl_client *c, struct status *s, struct err *e)
{
    int rc = ask_pages(c, "", on_job_name, s, e);

    if (rc == CTL_EXIT_OK && !s->jobs && !s->array && !s->local)
        printf("no jobs\n");
    for (struct job_list *j = s->jobs, *next; j; j = next) {
        next = j->next;
        if (rc == CTL_EXIT_OK)
            rc = show_job(c, j->run_id, s, e);
        if (next && !s->array)
            putchar('\n');
        free(j);
    }
    return rc;
}

/* After all jobs: an operator of many of them wants to know. */
static void print_confinement(const struct ctl_client *c)
{
    char text[2 * CONFINEMENT_MAX_BYTES];
    const char *confinement = ctl_client_confinement(c);

    if (*confinement)
        printf("\nrendezvous: %s\n", text_printable(confinement, text, sizeof(text)));
}

static int cmd_status_run(struct ctl_client *c, const struct ctl_options *o,
                          const char *word, struct err *e)
{
    struct status s = { .options = o, .array = o->json ? cJSON_CreateArray() : NULL };
    int rc;

    s.tail = &s.jobs;
    (void)word;
    rc = o->run_id ? show_job(c, o->run_id, &s, e) : show_all(c, &s, e);
    if (rc == CTL_EXIT_OK && !s.array && !o->run_id)
        print_confinement(c);
    if (s.array && rc == CTL_EXIT_OK) {
        char *text = text_printable_json(cJSON_Print(s.array));

        puts(text ? text : "[]");
        free(text);
    }
    cJSON_Delete(s.array);
    return rc;
}

/* -- the jobs of this machine ------------------------------------------------------ */

#define LOCAL_ANSWER_MS 1000 /* for all of them together: a crun may be stopped */

static void print_ended_job(const struct ctl_job *job)
{
    char name[256], text[1024], age[32];
    uint64_t now = clock_wall_ms();

    printf("job %s   %s", text_printable(job->name, name, sizeof(name)),
           job->state == CTL_JOB_KILLED ? "killed" : job->result);
    if (job->state == CTL_JOB_ENDED)
        printf("   %s, exit code %d", job->reason, job->exit_code);
    if (*job->text)
        printf(": %s", text_printable(job->text, text, sizeof(text)));
    printf("   ended %s ago\n",
           clock_format_duration(now > job->ended_ms ? now - job->ended_ms : 0, age,
                                 sizeof(age)));
}

static void print_silent_job(const struct ctl_job *job, const char *why)
{
    char name[256], text[512];

    printf("job %s   %s   pid %d\n", text_printable(job->name, name, sizeof(name)),
           text_printable(why, text, sizeof(text)), (int)job->pid);
}

static void add_local_object(struct status *s, const struct ctl_job *job,
                             const char *state)
{
    cJSON *o = cJSON_Duplicate(job->record, true);

    cJSON_AddStringToObject(o, "state", state);
    cJSON_AddItemToArray(s->array, o);
}

/* Asks one that has been greeted. */
static void show_running_job(struct status *s, struct ctl_client *c,
                             const struct ctl_job *job, uint64_t until_ms)
{
    struct err e;
    int rc = ctl_client_await_welcome(c, until_ms, &e);
    uint64_t now = clock_ms();

    if (rc == CTL_EXIT_OK) {
        ctl_client_set_timeout(c, until_ms > now ? until_ms - now : LOCAL_ANSWER_MS);
        rc = show_job(c, job->run_id, s, &e);
    }
    if (rc != CTL_EXIT_OK && s->array)
        add_local_object(s, job, "silent");
    else if (rc != CTL_EXIT_OK)
        print_silent_job(job, rc == CTL_EXIT_REFUSED ? e.text : "does not answer");
}

static int print_array(struct status *s)
{
    char *text = text_printable_json(cJSON_Print(s->array));

    puts(text ? text : "[]");
    free(text);
    return CTL_EXIT_OK;
}

static int status_run_all(const struct ctl_options *o, const struct ctl_jobs *jobs,
                          struct err *e)
{
    struct status s = { .options = o, .array = o->json ? cJSON_CreateArray() : NULL };
    struct ctl_client **c = calloc(jobs->running + 1, sizeof(*c));
    uint64_t until_ms = clock_ms() + LOCAL_ANSWER_MS;
    struct ctl_client *usual;
    size_t shown = 0;

    for (size_t i = 0; c && i < jobs->running; i++)
        if (!ctl_jobs_is_double(jobs, &jobs->job[i]))
            c[i] = ctl_client_greet(o, &jobs->job[i], e);
    for (size_t i = 0; c && i < jobs->running; i++) {
        if (!c[i])
            continue;
        if (shown++ && !s.array)
            putchar('\n');
        show_running_job(&s, c[i], &jobs->job[i], until_ms);
        ctl_client_close(c[i]);
    }
    free(c);
    s.local = jobs;
    s.tail = &s.jobs;
    usual = ctl_client_open_usual(o);
    if (usual)
        (void)!show_all(usual, &s, e);
    ctl_client_close(usual);
    if (shown && jobs->count > jobs->running && !s.array)
        putchar('\n');
    for (size_t i = jobs->running; i < jobs->count; i++)
        if (s.array)
            add_local_object(&s, &jobs->job[i], "ended");
        else
            print_ended_job(&jobs->job[i]);
    if (s.array)
        print_array(&s);
    cJSON_Delete(s.array);
    return CTL_EXIT_OK;
}

static int status_run_ended(const struct ctl_options *o, const struct ctl_job *job,
                            struct err *e)
{
    struct status s = { .options = o, .array = o->json ? cJSON_CreateArray() : NULL };

    (void)e;
    if (s.array) {
        add_local_object(&s, job, "ended");
        print_array(&s);
        cJSON_Delete(s.array);
        return CTL_EXIT_OK;
    }
    print_ended_job(job);
    if (*job->report)
        printf("\n%s", job->report);
    return CTL_EXIT_OK;
}

static const struct opt table[] = {
    CTL_JSON_FLAG("Print an array of jobs as JSON."),
    CTL_COMMON_FLAGS,
    { .name = NULL },
};

const struct ctl_command ctl_status = {
    .name = "status",
    .takes_job = true,
    .summary = "show the jobs, their nodes and their progress",
    .table = table,
    .access = ACCESS_VIEW,
    .run = cmd_status_run,
    .run_all = status_run_all,
    .run_ended = status_run_ended,
};
