/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/views/metrics_table.h"

#include <math.h>

#include "rendezvous/common/base/version.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/wire/protocol/proto_words.h"

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static void put_if_any(struct sample_writer *w, uint64_t number)
{
    if (number)
        sample_put(w, NULL, number);
}

/* -- the program ------------------------------------------------------------------- */

static void put_build(struct sample_writer *w, const struct metric_source *s)
{
    sample_put_info(w, s->view->is_daemon
                           ? "program=\"crund\",version=\"" CRUN_VERSION "\""
                           : "program=\"crun\",version=\"" CRUN_VERSION "\"");
}

static void put_jobs(struct sample_writer *w, const struct metric_source *s)
{
    uint64_t jobs[JOB_STATE_COUNT] = { 0 };

    for (const struct job *j = registry_jobs(s->view->registry); j; j = j->next)
        jobs[j->membership.state]++;
    for (unsigned i = 0; i < JOB_STATE_COUNT; i++)
        sample_put(w, proto_state_names[i], jobs[i]);
}

static void put_connections(struct sample_writer *w, const struct metric_source *s)
{
    sample_put(w, NULL, s->view->connections);
}

static void put_commits(struct sample_writer *w, const struct metric_source *s)
{
    if (s->view->commits)
        sample_put_histogram(w, s->view->commits, METRICS_COMMIT_UNIT_US);
}

/* -- jobs -------------------------------------------------------------------------- */

static void put_job_info(struct sample_writer *w, const struct metric_source *s)
{
    char labels[1024] = "";

    sample_add_label(labels, sizeof(labels), "name", s->job->name);
    sample_add_label(labels, sizeof(labels), "program",
                     s->job->membership.config.program);
    sample_put_info(w, labels);
}

static void put_state(struct sample_writer *w, const struct metric_source *s)
{
    for (unsigned i = 0; i < JOB_STATE_COUNT; i++)
        sample_put(w, proto_state_names[i], i == s->job->membership.state);
}

/* All of them are 0 while the job has no result. */
static void put_result(struct sample_writer *w, const struct metric_source *s)
{
    static const enum job_reason results[] = { JOB_REASON_SUCCESS, JOB_REASON_FAILURE,
                                               JOB_REASON_LOST, JOB_REASON_NOT_FORMED,
                                               JOB_REASON_USER };
    const struct membership *m = &s->job->membership;

    for (size_t i = 0; i < COUNT(results); i++)
        sample_put(w, proto_reason_names[results[i]],
                   m->state == JOB_DONE && m->stop.reason == results[i]);
}

static void put_start_time(struct sample_writer *w, const struct metric_source *s)
{
    sample_put_ms(w, NULL, s->job->created_wall_ms);
}

static void put_job_epoch(struct sample_writer *w, const struct metric_source *s)
{
    sample_put(w, NULL, s->job->membership.epoch);
}

static void put_nodes(struct sample_writer *w, const struct metric_source *s)
{
    for (unsigned i = 0; i < NODE_STATE_COUNT; i++)
        sample_put(w, proto_node_state_names[i], s->nodes_in[i]);
}

static void put_min_nodes(struct sample_writer *w, const struct metric_source *s)
{
    sample_put(w, NULL, s->job->membership.config.min_nodes);
}

static void put_max_nodes(struct sample_writer *w, const struct metric_source *s)
{
    sample_put(w, NULL, s->job->membership.config.max_nodes);
}

static void put_workers(struct sample_writer *w, const struct metric_source *s)
{
    const struct membership *m = &s->job->membership;

    sample_put(w, NULL, m->state == JOB_RUNNING ? m->world_size : 0);
}

static void put_restarts(struct sample_writer *w, const struct metric_source *s)
{
    for (unsigned i = 0; i < JOB_RESTART_COUNT; i++)
        sample_put(w, job_restart_names[i], s->job->counts.restarts[i]);
}

static void put_budget(struct sample_writer *w, const struct metric_source *s)
{
    sample_put(w, NULL, s->job->membership.config.max_restarts);
}

static void put_budget_left(struct sample_writer *w, const struct metric_source *s)
{
    const struct membership *m = &s->job->membership;

    sample_put(w, NULL,
               m->restarts < m->config.max_restarts
                   ? m->config.max_restarts - m->restarts
                   : 0);
}

static void put_hangs(struct sample_writer *w, const struct metric_source *s)
{
    sample_put(w, NULL, s->job->counts.hangs);
}

static void put_productive(struct sample_writer *w, const struct metric_source *s)
{
    if (!s->told->unplaced)
        sample_put_ms(w, NULL, s->told->ms[JOB_PHASE_PRODUCTIVE]);
}

static const char *const phases[JOB_PHASE_COUNT] = {
    [JOB_PHASE_DETECT] = "detect", [JOB_PHASE_STOP] = "stop",
    [JOB_PHASE_FORM] = "form",     [JOB_PHASE_START] = "start",
    [JOB_PHASE_REWORK] = "rework", [JOB_PHASE_FIRST_STEP] = "first_step",
};

static void put_phases(struct sample_writer *w, const struct time_spent_sums *sums)
{
    for (unsigned i = 0; i < JOB_PHASE_COUNT; i++)
        if (phases[i] && !(i == JOB_PHASE_REWORK && sums->unplaced))
            sample_put_ms(w, phases[i], sums->ms[i]);
}

static void put_lost(struct sample_writer *w, const struct metric_source *s)
{
    put_phases(w, s->told);
}

static void put_steps_again(struct sample_writer *w, const struct metric_source *s)
{
    if (!s->told->unplaced)
        sample_put(w, NULL, s->told->steps_again);
}

static void put_goodput(struct sample_writer *w, const struct metric_source *s)
{
    struct time_spent_sums all = time_spent_all(&s->job->membership.time,
                                                s->view->now_ms);
    uint64_t age = time_spent_age(&all);

    if (age && !all.unplaced)
        sample_put_real(w, (double)all.ms[JOB_PHASE_PRODUCTIVE] / (double)age);
}

static void put_recovery(struct sample_writer *w, const struct metric_source *s)
{
    sample_put_histogram(w, &s->job->counts.recovery, JOB_RECOVERY_UNIT_US);
}

static void put_last_recovery(struct sample_writer *w, const struct metric_source *s)
{
    struct time_spent_sums last = time_spent_last(&s->job->membership.time,
                                                  s->view->now_ms);

    if (s->job->membership.epoch > 1)
        put_phases(w, &last);
}

static void put_step(struct sample_writer *w, const struct metric_source *s)
{
    put_if_any(w, s->step);
}

static void put_final_step(struct sample_writer *w, const struct metric_source *s)
{
    put_if_any(w, s->steps);
}

static void put_known(struct sample_writer *w, double value)
{
    if (!isnan(value))
        sample_put_real(w, value);
}

static void put_rate(struct sample_writer *w, const struct metric_source *s)
{
    put_known(w, s->steps_per_s);
}

static void put_loss(struct sample_writer *w, const struct metric_source *s)
{
    put_known(w, s->loss);
}

/* -- nodes ------------------------------------------------------------------------- */

static const struct msg_heartbeat *progress_of(const struct metric_source *s)
{
    return &s->job->node[s->node]->progress;
}

static void put_connected(struct sample_writer *w, const struct metric_source *s)
{
    sample_put(w, NULL, s->job->membership.node[s->node].connected);
}

static uint64_t heard_ms_ago(const struct metric_source *s)
{
    const struct membership *m = &s->job->membership;

    return s->view->now_ms - m->clock.stalled - m->node[s->node].heard_at;
}

static void put_heartbeat_age(struct sample_writer *w, const struct metric_source *s)
{
    sample_put_ms(w, NULL, heard_ms_ago(s));
}

static void put_node_step(struct sample_writer *w, const struct metric_source *s)
{
    put_if_any(w, progress_of(s)->step);
}

static void put_silence(struct sample_writer *w, const struct metric_source *s)
{
    sample_put_ms(w, NULL, progress_of(s)->silent_ms);
}

static void put_slowness(struct sample_writer *w, const struct metric_source *s)
{
    uint32_t per_cent = job_slowness(s->job, s->node);

    if (per_cent)
        sample_put_ms(w, NULL, per_cent * 10);
}

static void put_checkpoint_age(struct sample_writer *w, const struct metric_source *s)
{
    if (progress_of(s)->checkpoint_ms)
        sample_put_ms(w, NULL, heard_ms_ago(s) + progress_of(s)->checkpoint_ms);
}

static void put_memory_step(struct sample_writer *w, const struct metric_source *s)
{
    put_if_any(w, progress_of(s)->memory.step);
}

static void put_memory_copied(struct sample_writer *w, const struct metric_source *s)
{
    put_if_any(w, progress_of(s)->memory.copied);
}

static void put_memory_bytes(struct sample_writer *w, const struct metric_source *s)
{
    put_if_any(w, progress_of(s)->memory.bytes);
}

static void put_memory_age(struct sample_writer *w, const struct metric_source *s)
{
    if (progress_of(s)->memory.step)
        sample_put_ms(w, NULL, heard_ms_ago(s) + progress_of(s)->memory.age_ms);
}

static void put_gpus(struct sample_writer *w, const struct metric_source *s)
{
    put_if_any(w, progress_of(s)->gpus.count);
}

static void put_gpu_load(struct sample_writer *w, const struct metric_source *s)
{
    const struct msg_gpus *g = &progress_of(s)->gpus;

    if (g->count && g->percent >= 0)
        sample_put_ms(w, NULL, (uint64_t)g->percent * 10);
}

static void put_gpu_memory(struct sample_writer *w, const struct metric_source *s)
{
    const struct msg_gpus *g = &progress_of(s)->gpus;

    if (g->total_mib)
        sample_put(w, NULL, (uint64_t)g->used_mib << 20);
}

static void put_gpu_size(struct sample_writer *w, const struct metric_source *s)
{
    const struct msg_gpus *g = &progress_of(s)->gpus;

    if (g->total_mib)
        sample_put(w, NULL, (uint64_t)g->total_mib << 20);
}

static void put_gpu_heat(struct sample_writer *w, const struct metric_source *s)
{
    put_if_any(w, progress_of(s)->gpus.celsius);
}

static void put_gpu_power(struct sample_writer *w, const struct metric_source *s)
{
    put_if_any(w, progress_of(s)->gpus.watts);
}

static void put_xids(struct sample_writer *w, const struct metric_source *s)
{
    if (progress_of(s)->gpus.count || progress_of(s)->xids)
        sample_put(w, NULL, progress_of(s)->xids);
}

static void put_last_xid(struct sample_writer *w, const struct metric_source *s)
{
    if (progress_of(s)->xids)
        sample_put(w, NULL, progress_of(s)->xid);
}

/* -- all of them ------------------------------------------------------------------- */

#define METRIC(name, type, subject, label, write, help)                                \
    {                                                                                  \
        name, METRIC_##type, METRIC_OF_##subject, label, help, write                   \
    }

const struct metric metrics_table[] = {
    METRIC("crun_build", INFO, PROGRAM, "program, version", put_build,
           "The program that tells these metrics."),
    METRIC("crund_jobs", GAUGE, DAEMON, "state", put_jobs,
           "Jobs that this crund knows."),
    METRIC("crund_connections", GAUGE, DAEMON, NULL, put_connections,
           "Connections of agents and of crunctl."),
    METRIC("crund_journal_fsync_seconds", HISTOGRAM, DAEMON, NULL, put_commits,
           "How long changes of jobs took to be written to disk and synced."),
    METRIC("crun_job", INFO, JOB, "name, program", put_job_info, "What the job runs."),
    METRIC("crun_job_state", GAUGE, JOB, "state", put_state,
           "1 for the state that the job is in."),
    METRIC("crun_job_result", GAUGE, JOB, "result", put_result,
           "1 for the result of a job that has ended."),
    METRIC("crun_job_start_time_seconds", GAUGE, JOB, NULL, put_start_time,
           "When the first node joined, in seconds since 1970."),
    METRIC("crun_job_epoch", GAUGE, JOB, NULL, put_job_epoch,
           "The number of its newest epoch."),
    METRIC("crun_job_nodes", GAUGE, JOB, "state", put_nodes, "Its nodes."),
    METRIC("crun_job_min_nodes", GAUGE, JOB, NULL, put_min_nodes,
           "The fewest nodes that an epoch of it has."),
    METRIC("crun_job_max_nodes", GAUGE, JOB, NULL, put_max_nodes,
           "The most nodes that an epoch of it has."),
    METRIC("crun_job_workers", GAUGE, JOB, NULL, put_workers,
           "Workers of the running epoch."),
    METRIC("crun_job_restarts", COUNTER, JOB, "cause", put_restarts,
           "How often the job was stopped to form again."),
    METRIC("crun_job_restart_budget", GAUGE, JOB, NULL, put_budget,
           "Restarts after failures that the job may make in all."),
    METRIC("crun_job_restart_budget_remaining", GAUGE, JOB, NULL, put_budget_left,
           "Those that are left."),
    METRIC("crun_hangs", COUNTER, JOB, NULL, put_hangs,
           "How often the job was stopped because a rank made no progress."),
    METRIC("crun_job_productive_seconds", COUNTER, JOB, NULL, put_productive,
           "Time in which the job made new steps."),
    METRIC("crun_job_lost_seconds", COUNTER, JOB, "phase", put_lost,
           "Time in which it made no new steps."),
    METRIC("crun_job_steps_again", COUNTER, JOB, NULL, put_steps_again,
           "Steps that were done again after a restart."),
    METRIC("crun_job_goodput_ratio", GAUGE, JOB, NULL, put_goodput,
           "The productive part of the job's age, exactly."),
    METRIC("crun_recovery_seconds", HISTOGRAM, JOB, NULL, put_recovery,
           "From an error or planned stop to the first step after it."),
    METRIC("crun_last_recovery_seconds", GAUGE, JOB, "phase", put_last_recovery,
           "The last restart, or the one that is under way."),
    METRIC("crun_job_step", GAUGE, JOB, NULL, put_step,
           "The step that all its nodes have done."),
    METRIC("crun_job_final_step", GAUGE, JOB, NULL, put_final_step,
           "The step with which it is complete, if its program tells."),
    METRIC("crun_job_steps_per_second", GAUGE, JOB, NULL, put_rate,
           "Its rate, by its slowest node."),
    METRIC("crun_job_loss", GAUGE, JOB, NULL, put_loss,
           "Its loss, as its program tells."),
    METRIC("crun_node_connected", GAUGE, NODE, NULL, put_connected,
           "1 if the node is connected."),
    METRIC("crun_node_heartbeat_age_seconds", GAUGE, NODE, NULL, put_heartbeat_age,
           "Since the node was heard from."),
    METRIC("crun_node_step", GAUGE, NODE, NULL, put_node_step,
           "The step of its slowest rank."),
    METRIC("crun_node_silent_seconds", GAUGE, NODE, NULL, put_silence,
           "For how long nothing has moved on any of its ranks, if it should."),
    METRIC("crun_node_slowness_ratio", GAUGE, NODE, NULL, put_slowness,
           "How many times as long its slowest rank takes for a step as the median."),
    METRIC("crun_node_checkpoint_age_seconds", GAUGE, NODE, NULL, put_checkpoint_age,
           "Since a checkpoint of its ranks was seen complete."),
    METRIC("crun_node_memory_checkpoint_step", GAUGE, NODE, NULL, put_memory_step,
           "The newest step of which its memory has checkpoints of all its ranks."),
    METRIC("crun_node_memory_checkpoint_copied_step", GAUGE, NODE, NULL,
           put_memory_copied,
           "The newest step of which another node has copies of them."),
    METRIC("crun_node_memory_checkpoint_bytes", GAUGE, NODE, NULL, put_memory_bytes,
           "What checkpoints take of its memory, those of other nodes too."),
    METRIC("crun_node_memory_checkpoint_age_seconds", GAUGE, NODE, NULL, put_memory_age,
           "Since the newest step in its memory was saved."),
    METRIC("crun_gpus", GAUGE, NODE, NULL, put_gpus, "GPUs of its workers."),
    METRIC("crun_gpu_utilization_ratio", GAUGE, NODE, NULL, put_gpu_load,
           "The part of the time in which they are in use, on average."),
    METRIC("crun_gpu_memory_used_bytes", GAUGE, NODE, NULL, put_gpu_memory,
           "Memory in use on the fullest of them."),
    METRIC("crun_gpu_memory_size_bytes", GAUGE, NODE, NULL, put_gpu_size,
           "All memory of that GPU."),
    METRIC("crun_gpu_temperature_celsius", GAUGE, NODE, NULL, put_gpu_heat,
           "Of the hottest of them."),
    METRIC("crun_gpu_power_watts", GAUGE, NODE, NULL, put_gpu_power,
           "Of all of them together."),
    METRIC("crun_gpu_xid", COUNTER, NODE, NULL, put_xids,
           "Errors (XIDs) that the driver has reported since the node's crun started."),
    METRIC("crun_gpu_last_xid", GAUGE, NODE, NULL, put_last_xid,
           "The number of the last of them."),
};

const unsigned metrics_count = COUNT(metrics_table);
