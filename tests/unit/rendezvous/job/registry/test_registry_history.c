/* SPDX-License-Identifier: MIT */
/* takes: 8 s */
/* What the registry keeps of a job's past, however long the job runs. */
#include <check.h>
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/history/job_archive.h"
#include "rendezvous/job/history/job_history.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/registry/registry.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/registry_world.h"

static const struct job_history *history_of_job(void)
{
    return registry_jobs(g)->history;
}

/* A node tells its step, the epoch's first one, its rate and its loss. */
static void tell_progress(unsigned c, uint64_t step, uint64_t first, const char *rate,
                          const char *loss)
{
    struct msg m = { .type = MSG_HEARTBEAT,
                     .epoch = registry_jobs(g)->membership.epoch,
                     .heartbeat = { .step = step, .first_step = first } };

    snprintf(m.heartbeat.steps_per_s, sizeof(m.heartbeat.steps_per_s), "%s", rate);
    snprintf(m.heartbeat.loss, sizeof(m.heartbeat.loss), "%s", loss);
    ck_assert_int_eq(send_to_registry(c, &m), 0);
}

/* Two nodes of a job that is restarted as often as need be. */
static void run_lasting_job(void)
{
    for (unsigned c = 0; c < 2; c++) {
        struct msg m = join_message(c, "resnet");

        m.join.config.max_restarts = 1000000;
        greet_registry(c, PEER_AGENT);
        ck_assert_int_eq(send_to_registry(c, &m), 0);
    }
    report_event(0, MSG_STORE_READY);
}

static void fail_and_start(void)
{
    report_event(1, MSG_FAILED);
    now += 200;
    report_event(0, MSG_STOPPED);
    report_event(1, MSG_STOPPED);
    while (registry_jobs(g)->membership.state != JOB_RUNNING)
        pass_ticks(100);
    now += 50;
    report_event(0, MSG_STORE_READY);
}

static void begin_lasting_job(void)
{
    begin_registry(true);
    run_lasting_job();
}

FIXTURE(begin_lasting_job, end_registry);

TEST(a_sample_is_of_the_slowest_node_and_once_a_second)
{
    const struct curve *curve = &history_of_job()->curve;

    ck_assert_uint_eq(curve->count, 0);
    tell_progress(0, 12, 1, "4.5", "2.25");
    ck_assert_uint_eq(curve->count, 1);
    tell_progress(1, 10, 1, "4.25", "2.5");
    ck_assert_uint_eq(curve->count, 1); /* too soon */
    now += 1000;
    tell_progress(0, 14, 1, "4.5", "2");
    ck_assert_uint_eq(curve->count, 2);
    ck_assert_uint_eq(curve->point[1].step, 10);
    ck_assert_double_eq(curve->point[1].value[CURVE_RATE], 4.25);
    ck_assert_double_eq(curve->point[1].value[CURVE_LOSS], 2); /* of the first node */
    ck_assert_uint_eq(curve->point[1].wall_ms, now);
}

TEST(a_sample_has_the_gpus_of_all_nodes)
{
    const struct curve *curve = &history_of_job()->curve;
    struct msg m = { .type = MSG_HEARTBEAT,
                     .epoch = registry_jobs(g)->membership.epoch,
                     .heartbeat = { .step = 5,
                                    .gpus = { 4, 90, 60000, 80000, 70, 2000, "" } } };

    ck_assert_int_eq(send_to_registry(0, &m), 0);
    ck_assert_double_eq(curve->point[0].value[CURVE_GPU_PERCENT], 90);
    m.heartbeat.gpus = (struct msg_gpus){ 12, 50, 61000, 80000, 60, 5000, "" };
    now += 1000;
    ck_assert_int_eq(send_to_registry(1, &m), 0);
    ck_assert_double_eq(curve->point[1].value[CURVE_GPU_PERCENT], 60);
    ck_assert_double_eq(curve->point[1].value[CURVE_GPU_USED_MIB], 61000);
    ck_assert_double_eq(curve->point[1].value[CURVE_GPU_WATTS], 7000);
}

TEST(what_is_no_number_is_not_known)
{
    const struct curve *curve = &history_of_job()->curve;

    tell_progress(0, 12, 1, "fast", "nan");
    ck_assert_uint_eq(curve->count, 1);
    ck_assert(isnan(curve->point[0].value[CURVE_RATE]) &&
              isnan(curve->point[0].value[CURVE_LOSS]));
    now += 1000;
    tell_progress(1, 12, 1, "", "3");
    ck_assert_double_eq(curve->point[1].value[CURVE_LOSS], 3);
}

TEST(steps_of_the_last_epoch_are_no_samples_of_this_one)
{
    const struct curve *curve = &history_of_job()->curve;

    tell_progress(0, 40, 1, "4", "2");
    now += 1000;
    tell_progress(1, 41, 1, "4", "2");
    fail_and_start();
    now += 1000;
    tell_progress(1, 21, 20, "4", "2");
    ck_assert_uint_eq(curve->point[curve->count - 1].step, 21);
}

TEST(epochs_have_their_cause_and_their_phases)
{
    const struct epochs *t = &history_of_job()->epochs;
    uint64_t failed;

    ck_assert_uint_eq(t->count, 1);
    ck_assert_int_eq(t->epoch[0].cause, JOB_CAUSE_FIRST);
    ck_assert_str_eq(t->epoch[0].text, "");
    now += 3000;
    tell_progress(0, 40, 1, "4", "2");
    ck_assert_uint_eq(t->epoch[0].first_step_ms, now);
    now += 2000;
    failed = now;
    fail_and_start();
    ck_assert_uint_eq(t->count, 2);
    ck_assert_uint_eq(t->epoch[0].ended_ms, failed);
    ck_assert_uint_eq(t->epoch[1].begun_ms, failed);
    ck_assert_uint_eq(t->epoch[1].epoch, 2);
    ck_assert_int_eq(t->epoch[1].cause, JOB_CAUSE_FAILURE);
    ck_assert(!t->epoch[1].hang);
    ck_assert_str_eq(t->epoch[1].text, "rank 3 on node-1 exited with code 85");
    ck_assert_uint_eq(t->epoch[1].nodes, 2);
    ck_assert_uint_eq(t->epoch[1].workers, 4);
    ck_assert_uint_eq(t->epoch[1].started_ms, now);
    ck_assert_uint_eq(t->epoch[1].time.ms[JOB_PHASE_STOP], 200);
    now += 500;
    tell_progress(0, 31, 31, "4", "2");
    cJSON_Delete((cJSON *)registry_show_history(g, registry_jobs(g), ACCESS_VIEW));
    ck_assert_uint_eq(t->epoch[1].time.ms[JOB_PHASE_FIRST_STEP], 500);
    ck_assert_uint_eq(t->epoch[1].time.ms[JOB_PHASE_START], 50);
    ck_assert_uint_eq(t->epoch[1].time.steps_again, 10);
}

/* A heartbeat may bring both. */
TEST(the_first_step_is_before_the_end_of_those_done_again)
{
    const struct epochs *t = &history_of_job()->epochs;
    struct msg beat = { .type = MSG_HEARTBEAT,
                        .epoch = 2,
                        .heartbeat = { .step = 45,
                                       .first_step = 31,
                                       .first_ms = 500,
                                       .reached_ms = 200 } };

    tell_progress(0, 40, 1, "4", "2");
    fail_and_start();
    now += 2000;
    ck_assert_int_eq(send_to_registry(0, &beat), 0);
    ck_assert_uint_eq(t->epoch[1].first_step_ms, now - 500);
    epochs_refresh(&registry_jobs(g)->history->epochs,
                   &registry_jobs(g)->membership.time, now);
    ck_assert_uint_eq(t->epoch[1].time.ms[JOB_PHASE_FIRST_STEP], 1500);
    ck_assert_uint_eq(t->epoch[1].time.ms[JOB_PHASE_REWORK], 300);
    ck_assert_uint_eq(t->epoch[1].time.ms[JOB_PHASE_PRODUCTIVE], 200);
}

/* The metrics have shown time as productive, and the error began before it. */
TEST(a_time_that_was_shown_does_not_fall)
{
    struct job *job = (struct job *)registry_jobs(g);
    struct msg late = { .type = MSG_FAILED,
                        .epoch = job->membership.epoch,
                        .failed = { .kind = FAILURE_EXIT, .rank = 3, .age_ms = 4000 } };
    uint64_t shown;

    now += 1000;
    tell_progress(0, 40, 1, "4", "2");
    now += 5000;
    tell_progress(0, 60, 1, "4", "2");
    shown = job_report_time(job, now)->ms[JOB_PHASE_PRODUCTIVE];
    ck_assert_uint_ge(shown, 5000);
    ck_assert_int_eq(send_to_registry(1, &late), 0);
    ck_assert_uint_eq(job_report_time(job, now)->ms[JOB_PHASE_DETECT], 4000);
    ck_assert_uint_eq(job_report_time(job, now)->ms[JOB_PHASE_PRODUCTIVE], shown);
}

TEST(a_viewer_sees_what_crunctl_events_shows_it)
{
    cJSON *o = (cJSON *)registry_show_history(g, registry_jobs(g), ACCESS_VIEW);
    char *text = cJSON_PrintUnformatted(o);

    ck_assert_ptr_nonnull(strstr(text, "\"node-1 joined\""));
    ck_assert_ptr_nonnull(strstr(text, "epoch 1 formed"));
    ck_assert_ptr_null(strstr(text, "pid 1"));
    ck_assert_ptr_null(strstr(text, "\"instance\":\""));
    free(text);
    cJSON_Delete(o);
    o = (cJSON *)registry_show_history(g, registry_jobs(g), ACCESS_AGENT);
    text = cJSON_PrintUnformatted(o);
    ck_assert_ptr_nonnull(strstr(text, "pid 1"));
    ck_assert_ptr_nonnull(strstr(text, "\"instance\":\""));
    free(text);
    cJSON_Delete(o);
}

/* A heartbeat of each node each second, and a restart after each four minutes. */
TEST(a_day_stays_in_bounds)
{
    const unsigned seconds = 86400, between = 240;
    const struct job_history *h = history_of_job();
    uint64_t began = now, step = 0, base = 0;
    char rate[16], loss[16], *text;
    cJSON *o;

    for (unsigned s = 1; s <= seconds; s++) {
        if (s % between == 0) {
            fail_and_start();
            base = step > 40 ? step - 40 : 0; /* the last checkpoint */
            step = base;
        }
        now += 1000;
        step += 5;
        snprintf(rate, sizeof(rate), "%.2f", 5 + 0.01 * (s % 17));
        snprintf(loss, sizeof(loss), "%.4f", 8 / log(10 + (double)step));
        for (unsigned c = 0; c < 2; c++)
            tell_progress(c, step, base + 1, rate, loss);
    }
    ck_assert_uint_ge(h->epochs.left_out, seconds / between - EPOCHS_KEPT);
    ck_assert_uint_eq(h->epochs.epoch[0].epoch, 1);
    ck_assert_uint_gt(h->curve.count, CURVE_POINTS_MAX / 2 - 1);
    ck_assert_uint_le(h->curve.point[0].wall_ms, began + 2000);
    ck_assert_uint_eq(h->curve.point[h->curve.count - 1].wall_ms, now);
    ck_assert_uint_eq(h->curve.point[h->curve.count - 1].step, step);
    for (unsigned i = 1; i < h->curve.count; i++)
        ck_assert_uint_lt(h->curve.point[i - 1].wall_ms, h->curve.point[i].wall_ms);
    o = (cJSON *)registry_show_history(g, registry_jobs(g), ACCESS_AGENT);
    text = cJSON_PrintUnformatted(o);
    ck_assert_uint_le(strlen(text), 64u << 10);
    ck_assert_uint_le(job_history_size(h), 64u << 10);
    if (getenv("SHOW_SIZES"))
        printf("%zu bytes of JSON, %zu of memory\n", strlen(text), job_history_size(h));
    free(text);
    cJSON_Delete(o);
}

/* -- for crunctl, and over a restart ------------------------------------------------
 */

static char dir[] = "/tmp/test_registry_history.XXXXXX";
static struct job_archive *archive;

static void open_archive(void)
{
    struct err e;

    job_archive_close(archive);
    archive = job_archive_open(dir, &e);
    ck_assert_msg(archive != NULL, "%s", archive ? "" : e.text);
    registry_set_archive(g, archive);
}

static void begin_kept_world(void)
{
    log_init("test", LOG_ERROR, LOG_TEXT);
    strcpy(dir + strlen(dir) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    disk = memdisk_create();
    begin_registry(true);
    open_archive();
    run_lasting_job();
}

static void end_kept_world(void)
{
    char *command = xasprintf("rm -rf %s", dir);

    end_registry();
    memdisk_destroy(disk);
    disk = NULL;
    job_archive_close(archive);
    archive = NULL;
    ck_assert_int_eq(system(command), 0);
    free(command);
}

/* The daemon is killed; its archive stays as it is. */
static void kill_and_restart(void)
{
    commit_registry();
    restart_registry();
    open_archive();
}

static void beat_for(unsigned seconds, uint64_t step)
{
    for (unsigned s = 0; s < seconds; s++) {
        pass_ticks(1000);
        for (unsigned c = 0; c < 2; c++)
            tell_progress(c, step + s, 1, "5", "2");
    }
}

/* The answer's history, of all its pieces. NULL: there was none. */
static char *ask_history(unsigned c, const char *run_id)
{
    struct msg ask = { .type = MSG_SHOW_HISTORY };
    char *text = NULL;
    size_t size = 0;

    snprintf(ask.show_history.run_id, sizeof(ask.show_history.run_id), "%s", run_id);
    if (!link_of[c].peer)
        greet_registry(c, PEER_CTL);
    ck_assert_int_eq(send_to_registry(c, &ask), 0);
    for (unsigned i = 0; i < link_of[c].count; i++)
        if (link_of[c].got[i].type == MSG_HISTORY) {
            const char *piece = link_of[c].got[i].history.text;

            text = xrealloc(text, size + strlen(piece) + 1);
            strcpy(text + size, piece);
            size += strlen(piece);
        }
    return text;
}

FIXTURE(begin_kept_world, end_kept_world);

TEST(crunctl_gets_the_past_in_pieces)
{
    char *text;
    cJSON *o;

    for (unsigned i = 0; i < 20; i++)
        fail_and_start();
    beat_for(300, 10);
    text = ask_history(2, "resnet");
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_gt(strlen(text), HISTORY_PIECE_MAX_BYTES);
    ck_assert_ptr_nonnull(message_got(2, MSG_JOB_STATUS));
    ck_assert_ptr_nonnull(message_got(2, MSG_END_OF_LIST));
    o = cJSON_Parse(text);
    ck_assert_ptr_nonnull(o);
    ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(o, "epochs")), 21);
    cJSON_Delete(o);
    free(text);
    ck_assert_ptr_null(ask_history(2, "bert"));
    refusal_got(2, REFUSED_UNKNOWN, "there is no job \"bert\" here");
}

TEST(a_daemon_that_is_killed_loses_a_minute_at_most)
{
    const struct job_history *h;
    unsigned count;

    beat_for(90, 10);
    fail_and_start();
    beat_for(10, 200);
    count = history_of_job()->curve.count;
    kill_and_restart();
    h = history_of_job();
    ck_assert_uint_ge(h->curve.count, count - 60);
    ck_assert_uint_eq(h->epochs.count, 2);
    ck_assert_str_eq(h->epochs.epoch[1].text, "rank 3 on node-1 exited with code 85");
    ck_assert_uint_ne(h->epochs.epoch[1].started_ms, 0);
    ck_assert_uint_eq(h->epochs.epoch[1].ended_ms, 0);
    ck_assert_str_eq(h->event[h->events - 1]->kind, "restored");
    ck_assert_uint_gt(h->events, 4);
}

/* It is forgotten by the journal after an hour. */
TEST_LOOP(a_job_that_is_over_is_kept, 0, 2)
{
    const struct msg *status;
    struct msg end = { .type = MSG_END, .end = { .exit_code = 3, .reason = "test" } };
    char *text;

    beat_for(3, 10);
    send_to_registry(0, &end);
    report_event(0, MSG_STOPPED);
    report_event(1, MSG_STOPPED);
    for (unsigned c = 0; c < 2; c++) {
        struct msg bye = { .type = MSG_BYE };

        send_to_registry(c, &bye);
    }
    ck_assert_int_eq(registry_jobs(g)->membership.state, JOB_DONE);
    pass_ticks(200);
    ck_assert_ptr_null(ask_history(2, "")); /* it is among the jobs still */
    ck_assert_ptr_null(message_got(2, MSG_JOB_STATUS));
    if (_i)
        kill_and_restart();
    now += 3700000;
    pass_ticks(200);
    ck_assert_ptr_null(registry_jobs(g));
    ck_assert_ptr_null(ask_history(2, ""));
    status = message_got(2, MSG_JOB_STATUS);
    ck_assert_ptr_nonnull(status);
    ck_assert_str_eq(status->job_status.run_id, "resnet");
    ck_assert_int_eq(status->job_status.state, JOB_DONE);
    ck_assert_int_eq(status->job_status.exit_code, 3);
    ck_assert_uint_ge(status->job_status.state_ms, 3700000);
    ck_assert_uint_lt(status->job_status.state_ms, 3710000);
    text = ask_history(2, "resnet");
    ck_assert_ptr_nonnull(strstr(text, "\"step\":[10,10,11]"));
    free(text);
}

/* Of uid 1000 each; every third of another user. */
static void archive_jobs(unsigned count)
{
    struct job_history *h = job_history_create();

    for (unsigned n = 0; n < count; n++) {
        struct archived_job job = {
            .instance = { { 7, (uint8_t)(n >> 8), (uint8_t)n } },
            .owner = { .uid = n % 3 == 0 ? 2000 : 1000 },
            .created_ms = 1 + n,
            .ended_ms = 500 + n,
        };
        struct msg_job_status status = { .state = JOB_DONE, .instance = job.instance };

        snprintf(job.run_id, sizeof(job.run_id), "old-%u", n);
        memcpy(status.run_id, job.run_id, sizeof(status.run_id));
        strcpy(status.failure.said, "a secret");
        status.failure.kind = FAILURE_EXIT;
        ck_assert(job_archive_write(archive, &job, &status, h));
    }
    job_history_destroy(h);
}

TEST(jobs_that_are_over_come_in_pages)
{
    struct msg ask = { .type = MSG_SHOW_HISTORY };
    unsigned seen = 0, pages = 0, newest = UINT32_MAX;

    archive_jobs(900);
    connect_to_registry_as(2, &(struct peer_origin){ .address = "127.0.0.1",
                                                     .uid = 1000,
                                                     .access = ACCESS_VIEW });
    greet_registry(2, PEER_CTL);
    do {
        ck_assert_int_eq(send_to_registry(2, &ask), 0);
        for (unsigned i = 0; i < link_of[2].count; i++) {
            const struct msg *m = &link_of[2].got[i];
            unsigned number;

            if (m->type != MSG_JOB_STATUS)
                continue;
            ck_assert_int_eq(sscanf(m->job_status.run_id, "old-%u", &number), 1);
            ck_assert_uint_lt(number, newest);
            ck_assert_uint_ne(number % 3, 0);
            ck_assert_int_eq(m->job_status.failure.kind, FAILURE_NONE);
            newest = number;
            seen++;
        }
        ask.show_history.from = (uint32_t)message_got(2, MSG_END_OF_LIST)
                                    ->end_of_list.next;
        pages++;
    } while (ask.show_history.from);
    ck_assert_uint_eq(seen, 600);
    ck_assert_uint_eq(pages, 3);
    ck_assert_ptr_null(ask_history(2, "old-3")); /* of another user */
    refusal_got(2, REFUSED_UNKNOWN, "there is no job \"old-3\" here");
    free(ask_history(2, "old-4"));
    ck_assert_ptr_null(
        strstr(message_got(2, MSG_JOB_STATUS)->job_status.failure.said, "secret"));
}
