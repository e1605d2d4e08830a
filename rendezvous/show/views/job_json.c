/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/views/job_json.h"

#include <stdlib.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/real.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/events/json_fields.h"
#include "rendezvous/wire/protocol/proto.h"

/* -- values ----------------------------------------------------------------------- */

/* The number that a text shows, or null. */
static void add_number_of_text(cJSON *o, const char *name, const char *text)
{
    double value = real_of_text(text);

    if (!isnan(value))
        cJSON_AddNumberToObject(o, name, value);
    else
        cJSON_AddNullToObject(o, name);
}

/* null if it is less than `least` */
static void add_if_known(cJSON *o, const char *name, double value, double least)
{
    if (value >= least)
        cJSON_AddNumberToObject(o, name, value);
    else
        cJSON_AddNullToObject(o, name);
}

void job_json_add_time(cJSON *o, const char *name, uint64_t wall_ms)
{
    char text[64], *name_ms = xasprintf("%s_ms", name);

    if (wall_ms) {
        cJSON_AddStringToObject(o, name,
                                clock_format_rfc3339(wall_ms, text, sizeof(text)));
        json_add_count(o, name_ms, wall_ms);
    } else {
        cJSON_AddNullToObject(o, name);
        cJSON_AddNullToObject(o, name_ms);
    }
    free(name_ms);
}

/* -- jobs ------------------------------------------------------------------------- */

static void add_failure_object(cJSON *o, const struct failure *f)
{
    if (f->kind == FAILURE_NONE) {
        cJSON_AddNullToObject(o, "failure");
        return;
    }
    o = cJSON_AddObjectToObject(o, "failure");
    cJSON_AddStringToObject(o, "kind", proto_failure_kind_name(f->kind));
    cJSON_AddStringToObject(o, "host", f->host);
    cJSON_AddNumberToObject(o, "rank", f->rank);
    cJSON_AddNumberToObject(o, "local_rank", f->local_rank);
    cJSON_AddNumberToObject(o, "pid", f->pid);
    cJSON_AddNumberToObject(o, "code", f->code);
    job_json_add_time(o, "time", f->wall_ms);
    cJSON_AddStringToObject(o, "said", f->said);
    cJSON_AddStringToObject(o, "log", f->log);
}

static void add_gpus_object(cJSON *o, const struct msg_gpus *g)
{
    if (g->count == 0) {
        cJSON_AddNullToObject(o, "gpus");
        return;
    }
    o = cJSON_AddObjectToObject(o, "gpus");
    cJSON_AddNumberToObject(o, "count", g->count);
    add_if_known(o, "percent", g->percent, 0);
    cJSON_AddNumberToObject(o, "used_mib", g->used_mib);
    cJSON_AddNumberToObject(o, "total_mib", g->total_mib);
    cJSON_AddNumberToObject(o, "celsius", g->celsius);
    cJSON_AddNumberToObject(o, "watts", g->watts);
}

static void add_memory_object(cJSON *o, const struct msg_memory *m)
{
    if (m->bytes == 0) {
        cJSON_AddNullToObject(o, "memory");
        return;
    }
    o = cJSON_AddObjectToObject(o, "memory");
    add_if_known(o, "step", (double)m->step, 1);
    add_if_known(o, "copied", (double)m->copied, 1);
    add_if_known(o, "restored", (double)m->restored, 1);
    json_add_count(o, "bytes", m->bytes);
    add_if_known(o, "age_ms", m->step ? m->age_ms : -1.0, 0);
}

static cJSON *node_object(const struct msg_node_status *s)
{
    cJSON *o = cJSON_CreateObject();

    cJSON_AddStringToObject(o, "host", s->host);
    cJSON_AddStringToObject(o, "address", s->address);
    add_if_known(o, "pid", s->pid, 1);
    cJSON_AddStringToObject(o, "state", proto_node_state_name(s->state));
    cJSON_AddBoolToObject(o, "connected", s->connected);
    add_if_known(o, "slot", s->slot, 0);
    add_if_known(o, "group_rank", s->group_rank, 0);
    add_if_known(o, "first_rank", s->group_rank < 0 ? -1.0 : s->first_rank, 0);
    cJSON_AddNumberToObject(o, "workers", s->workers);
    json_add_count(o, "heard_ms_ago", s->heard_ms);
    cJSON_AddStringToObject(o, "containment", s->containment);
    add_if_known(o, "step", (double)s->progress.step, 1);
    add_number_of_text(o, "steps_per_s", s->progress.steps_per_s);
    add_number_of_text(o, "loss", s->progress.loss);
    cJSON_AddStringToObject(o, "note", s->progress.note);
    add_gpus_object(o, &s->progress.gpus);
    add_if_known(o, "slowness", s->slowness / 100.0, 0.01);
    add_if_known(o, "xid", s->progress.xid, 1);
    cJSON_AddNumberToObject(o, "xids", s->progress.xids);
    add_if_known(o, "checkpoint_age_ms", s->progress.checkpoint_ms, 1);
    add_memory_object(o, &s->progress.memory);
    return o;
}

void job_json_add_phases(cJSON *o, const char *name, const struct msg_job_time *t)
{
    if (job_view_age_ms(t) == 0) {
        cJSON_AddNullToObject(o, name);
        return;
    }
    o = cJSON_AddObjectToObject(o, name);
    json_add_count_if(o, !t->unplaced, "productive_ms", t->productive_ms);
    if (t->unplaced)
        json_add_count(o, "ran_ms", t->productive_ms);
    json_add_count(o, "detect_ms", t->detect_ms);
    json_add_count(o, "stop_ms", t->stop_ms);
    json_add_count(o, "form_ms", t->form_ms);
    json_add_count(o, "start_ms", t->start_ms);
    json_add_count(o, "first_step_ms", t->first_step_ms);
    json_add_count_if(o, !t->unplaced, "rework_ms", t->rework_ms);
    json_add_count_if(o, !t->unplaced, "steps_again", t->steps_again);
}

cJSON *job_json_object(const struct job_view *job)
{
    const struct msg_job_status *s = &job->status;
    bool has_ended = s->state == JOB_DONE, knows = !job->is_silent;
    uint64_t now = job->wall_ms ? job->wall_ms : clock_wall_ms();
    char instance[ID128_HEX_SIZE];
    cJSON *o = cJSON_CreateObject(), *nodes;

    cJSON_AddStringToObject(o, "job", s->run_id);
    cJSON_AddStringToObject(o, "name", job->name);
    add_if_known(o, "pid", job->pid, 1);
    cJSON_AddStringToObject(
        o, "state", job->odd_state ? job->odd_state : proto_state_name(s->state));
    cJSON_AddStringToObject(o, "cause", proto_cause_name(s->cause));
    cJSON_AddStringToObject(o, "result", proto_reason_name(s->reason));
    cJSON_AddStringToObject(o, "text", s->text);
    cJSON_AddStringToObject(o, "notice", s->notice);
    if (*s->keepers) {
        cJSON_AddStringToObject(o, "keepers", s->keepers);
        cJSON_AddBoolToObject(o, "kept_safely", s->kept_safely);
    }
    cJSON_AddStringToObject(o, "program", s->program);
    cJSON_AddStringToObject(o, "instance", id128_format(&s->instance, instance));
    json_add_count_if(o, knows, "epoch", s->epoch);
    json_add_count_if(o, knows, "node_count", s->nodes);
    json_add_count_if(o, knows, "spare_count", s->spares);
    json_add_count_if(o, knows, "worker_count", s->workers);
    cJSON_AddNumberToObject(o, "min_nodes", s->min_nodes);
    cJSON_AddNumberToObject(o, "max_nodes", s->max_nodes);
    json_add_count_if(o, knows, "restarts", s->restarts);
    json_add_count_if(o, knows, "max_restarts", s->max_restarts);
    add_if_known(o, "goodput",
                 job_view_age_ms(&s->time) && !s->time.unplaced
                     ? (double)s->time.productive_ms / (double)job_view_age_ms(&s->time)
                     : -1,
                 0);
    job_json_add_phases(o, "time", &s->time);
    job_json_add_phases(o, "last_restart", &s->last_restart);
    add_if_known(o, "exit_code", has_ended && knows ? s->exit_code : -1, 0);
    add_if_known(o, "step", (double)job_view_step(job), 1);
    add_if_known(o, "steps", (double)job_view_steps(job), 1);
    json_add_count(o, "age_ms", s->age_ms);
    json_add_count_if(o, knows, "state_ms", s->state_ms);
    job_json_add_time(o, "started", now - s->age_ms);
    job_json_add_time(o, "ended", has_ended && knows ? now - s->state_ms : 0);
    add_failure_object(o, &s->failure);
    if (job->report)
        cJSON_AddStringToObject(o, "report", job->report);
    else
        cJSON_AddNullToObject(o, "report");
    nodes = cJSON_AddArrayToObject(o, "nodes");
    for (size_t i = 0; i < job->nodes; i++)
        cJSON_AddItemToArray(nodes, node_object(&job->node[i]));
    cJSON_AddItemToObject(o, "history",
                          job->history ? cJSON_Duplicate(job->history, true)
                                       : cJSON_CreateNull());
    return o;
}

cJSON *job_json_list(const struct job_views *v)
{
    cJSON *array = cJSON_CreateArray();

    for (size_t i = 0; i < v->count; i++)
        cJSON_AddItemToArray(array, job_json_object(&v->job[i]));
    return array;
}

/* -- printing --------------------------------------------------------------------- */

/* cJSON lays out by tabs, which are nowhere within its strings: one after each colon,
 * and others at the beginning of a line. */
void job_json_print(cJSON *json, bool in_one_line, FILE *out)
{
    char *text = text_printable_json(in_one_line ? cJSON_PrintUnformatted(json)
                                                 : cJSON_Print(json));

    for (const char *c = text ? text : "null"; *c; c++)
        if (*c == '\t')
            fputs(c > text && c[-1] == ':' ? " " : "  ", out);
        else
            fputc(*c, out);
    fputc('\n', out);
    free(text);
    cJSON_Delete(json);
}
