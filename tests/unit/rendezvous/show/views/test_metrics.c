/* SPDX-License-Identifier: MIT */
/*
 * The metrics of a rendezvous: the text in both formats, counts that never fall, and
 * the table against the manuals.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/show/views/limits.h"
#include "rendezvous/show/views/metrics.h"
#include "rendezvous/show/views/metrics_table.h"
#include "tests/fakes/disk/memdisk.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/registry_world.h"

static struct histogram commits;
static char *text;

static const char *write_metrics(void)
{
    struct metrics_view view = { .registry = g,
                                 .now_ms = now,
                                 .wall_ms = now,
                                 .is_daemon = true,
                                 .connections = 7,
                                 .commits = &commits };
    size_t size;
    FILE *out;

    free(text);
    out = open_memstream(&text, &size);
    metrics_write(&view, out);
    fclose(out);
    return text;
}

/* The value of a sample of the one job; -1: there is none. */
static double sample_of(const char *name, const char *labels)
{
    char line[256];
    const char *at;

    snprintf(line, sizeof(line), "\n%s{run_id=\"resnet\",owner=\"1000\"%s%s} ", name,
             *labels ? "," : "", labels);
    at = strstr(write_metrics(), line);
    return at ? strtod(at + strlen(line), NULL) : -1;
}

static void beat_with(unsigned c, struct msg_heartbeat progress)
{
    struct msg m = { .type = MSG_HEARTBEAT,
                     .epoch = registry_jobs(g)->membership.epoch,
                     .heartbeat = progress };

    ck_assert_int_eq(send_to_registry(c, &m), 0);
}

static void begin_metrics(void)
{
    begin_registry(true);
}

static void begin_on_disk(void)
{
    disk = memdisk_create();
    begin_registry(true);
}

static void end_metrics(void)
{
    end_registry();
    memdisk_destroy(disk);
    disk = NULL;
    free(text);
    text = NULL;
}

/* -- the text ---------------------------------------------------------------------- */

FIXTURE(begin_metrics, end_metrics);

TEST(the_text_has_a_running_job)
{
    run_job();
    beat_with(0, (struct msg_heartbeat){ .step = 12,
                                         .steps = 100,
                                         .steps_per_s = "2.5",
                                         .loss = "0.25",
                                         .first_step = 1 });
    beat_with(1, (struct msg_heartbeat){ .step = 11, .steps_per_s = "2.25" });
    ck_assert_double_eq(sample_of("crun_job_state", "state=\"running\""), 1);
    ck_assert_double_eq(sample_of("crun_job_state", "state=\"done\""), 0);
    ck_assert_double_eq(sample_of("crun_job_nodes", "state=\"running\""), 2);
    ck_assert_double_eq(sample_of("crun_job_step", ""), 11);
    ck_assert_double_eq(sample_of("crun_job_final_step", ""), 100);
    ck_assert_double_eq(sample_of("crun_job_steps_per_second", ""), 2.25);
    ck_assert_double_eq(sample_of("crun_job_loss", ""), 0.25);
    ck_assert_double_eq(sample_of("crun_node_step", "node=\"node-0\""), 12);
    ck_assert_ptr_nonnull(strstr(text, "\ncrund_connections 7\n"));
    ck_assert_ptr_nonnull(strstr(text, "\n# TYPE crun_job_restarts_total counter\n"));
    ck_assert_ptr_nonnull(strstr(text, "# TYPE crun_build_info gauge\n"));
}

TEST(a_node_without_checkpoints_in_memory_has_no_samples_of_them)
{
    static const char *const names[] = { "crun_node_memory_checkpoint_step",
                                         "crun_node_memory_checkpoint_copied_step",
                                         "crun_node_memory_checkpoint_bytes",
                                         "crun_node_memory_checkpoint_age_seconds" };
    static const double of_node_0[] = { 12, 11, 5000000000, 2.5 };

    run_job();
    beat_with(0, (struct msg_heartbeat){ .step = 12,
                                         .memory = { .step = 12,
                                                     .copied = 11,
                                                     .bytes = 5000000000,
                                                     .age_ms = 500 } });
    beat_with(1, (struct msg_heartbeat){ .step = 12 });
    now += 2000;
    for (unsigned i = 0; i < 4; i++) {
        ck_assert_double_eq(sample_of(names[i], "node=\"node-0\""), of_node_0[i]);
        ck_assert_double_eq(sample_of(names[i], "node=\"node-1\""), -1);
    }
    /* the first parts are being written */
    beat_with(0, (struct msg_heartbeat){ .step = 12, .memory = { .bytes = 4096 } });
    for (unsigned i = 0; i < 4; i++)
        ck_assert_double_eq(sample_of(names[i], "node=\"node-0\""), i == 2 ? 4096 : -1);
}

TEST(each_metric_has_its_line_and_no_other_has)
{
    unsigned types = 0;

    run_job();
    write_metrics();
    for (const char *at = text; (at = strstr(at, "# TYPE ")); at++)
        types++;
    ck_assert_uint_eq(types, metrics_count);
    for (unsigned i = 0; i < metrics_count; i++) {
        const struct metric *m = &metrics_table[i];

        ck_assert_msg(m->help[strlen(m->help) - 1] == '.', "%s", m->name);
    }
}

TEST(labels_are_escaped)
{
    char labels[64] = "", small[16] = "";

    sample_add_label(labels, sizeof(labels), "a", "b\"c\\d\n\xff");
    ck_assert_uint_eq(sample_add_label(labels, sizeof(labels), "e", "\xc3\xa4"),
                      strlen(labels));
    ck_assert_str_eq(labels, "a=\"b\\\"c\\\\d??\",e=\"\xc3\xa4\"");
    ck_assert_uint_eq(sample_add_label(small, sizeof(small), "abc", "0123456789"), 0);
}

TEST(the_program_of_a_job_breaks_no_line)
{
    struct msg m = join_message(0, "resnet");

    greet_registry(0, PEER_AGENT);
    strcpy(m.join.config.program, "a\nb\" 1");
    ck_assert_int_eq(send_to_registry(0, &m), 0);
    ck_assert_ptr_nonnull(strstr(write_metrics(), "program=\"a?b\\\" 1\"} 1\n"));
}

/* -- the manual -------------------------------------------------------------------- */

#define MANUAL "launcher/man/crund.8"

static void describe_metric(const struct metric *m, char *buf, size_t size)
{
    static const char *const types[] = { [METRIC_COUNTER] = "counter",
                                         [METRIC_GAUGE] = "gauge",
                                         [METRIC_INFO] = "info",
                                         [METRIC_HISTOGRAM] = "histogram" };
    static const char *const subjects[] = { [METRIC_OF_PROGRAM] = "",
                                            [METRIC_OF_DAEMON] = "",
                                            [METRIC_OF_JOB] = "run_id",
                                            [METRIC_OF_NODE] = "run_id, node" };
    const char *labels = subjects[m->subject];

    snprintf(buf, size, "\n.It Ic %s%s Pq %s%s%s%s%s\n%s\n", m->name,
             m->type == METRIC_COUNTER ? "_total"
             : m->type == METRIC_INFO  ? "_info"
                                       : "",
             types[m->type], *labels || m->label ? "; " : "", labels,
             *labels && m->label ? ", " : "", m->label ? m->label : "", m->help);
}

TEST(the_manual_has_the_table)
{
    char manual[65536] = "", row[512];
    FILE *f = fopen(MANUAL, "r");
    unsigned rows = 0;

    ck_assert_ptr_nonnull(f);
    ck_assert_uint_gt(fread(manual, 1, sizeof(manual) - 1, f), 0);
    fclose(f);
    for (const char *at = manual; (at = strstr(at, "\n.It Ic crun")); at++)
        rows++;
    ck_assert_uint_eq(rows, metrics_count);
    for (unsigned i = 0; i < metrics_count; i++) {
        describe_metric(&metrics_table[i], row, sizeof(row));
        ck_assert_msg(strstr(manual, row) != NULL, MANUAL " lacks:%s", row);
    }
}

/* -- counts ------------------------------------------------------------------------ */

static void fail_and_form_again(enum failure_kind kind)
{
    struct msg failed = { .type = MSG_FAILED,
                          .epoch = registry_jobs(g)->membership.epoch,
                          .failed = { .kind = kind, .rank = 3, .code = 85 } };

    ck_assert_int_eq(send_to_registry(1, &failed), 0);
    now += 2000;
    report_event(0, MSG_STOPPED);
    report_event(1, MSG_STOPPED);
    now += 1000;
}

FIXTURE(begin_on_disk, end_metrics);

TEST(restarts_are_counted_by_cause_and_kept)
{
    run_job();
    now += 5000;
    fail_and_form_again(FAILURE_HANG);
    ck_assert_double_eq(sample_of("crun_job_restarts_total", "cause=\"hang\""), 1);
    ck_assert_double_eq(sample_of("crun_job_restarts_total", "cause=\"failure\""), 0);
    ck_assert_double_eq(sample_of("crun_hangs_total", ""), 1);
    ck_assert_double_eq(sample_of("crun_job_restart_budget_remaining", ""), 0);
    restart_registry();
    ck_assert_double_eq(sample_of("crun_job_restarts_total", "cause=\"hang\""), 1);
    ck_assert_double_eq(sample_of("crun_hangs_total", ""), 1);
    ck_assert_double_eq(sample_of("crun_job_lost_seconds_total", "phase=\"stop\""), 2);
}

FIXTURE(begin_metrics, end_metrics);

TEST(a_recovery_is_counted_when_training_goes_on)
{
    run_job();
    beat_with(0, (struct msg_heartbeat){ .step = 5, .first_step = 1 });
    fail_and_form_again(FAILURE_EXIT);
    ck_assert_double_eq(sample_of("crun_recovery_seconds_count", ""), 0);
    report_event(0, MSG_STORE_READY);
    beat_with(0, (struct msg_heartbeat){ .step = 4, .first_step = 4 });
    ck_assert_double_eq(sample_of("crun_recovery_seconds_count", ""), 1);
    ck_assert_double_eq(sample_of("crun_recovery_seconds_sum", ""), 3);
    ck_assert_double_eq(sample_of("crun_recovery_seconds_bucket", "le=\"2.0\""), 0);
    ck_assert_double_eq(sample_of("crun_recovery_seconds_bucket", "le=\"5.0\""), 1);
    ck_assert_double_eq(sample_of("crun_recovery_seconds_bucket", "le=\"+Inf\""), 1);
    ck_assert_double_eq(sample_of("crun_job_steps_again_total", ""), 2);
}

TEST(what_is_not_known_of_steps_is_left_out)
{
    run_job();
    beat_with(0, (struct msg_heartbeat){ .step = 5, .first_step = STEP_UNPLACED });
    ck_assert_double_eq(sample_of("crun_job_steps_again_total", ""), 0);
    fail_and_form_again(FAILURE_EXIT);
    report_event(0, MSG_STORE_READY);
    beat_with(0, (struct msg_heartbeat){ .step = 1, .first_step = STEP_UNPLACED });
    ck_assert_double_eq(sample_of("crun_recovery_seconds_count", ""), 1);
    ck_assert_double_eq(sample_of("crun_job_steps_again_total", ""), -1);
    ck_assert_double_eq(sample_of("crun_job_goodput_ratio", ""), -1);
    ck_assert_double_eq(sample_of("crun_job_productive_seconds_total", ""), -1);
    ck_assert_double_eq(sample_of("crun_job_lost_seconds_total", "phase=\"rework\""),
                        -1);
    ck_assert_double_ge(sample_of("crun_job_lost_seconds_total", "phase=\"stop\""), 0);
}

TEST(productive_time_never_falls)
{
    struct msg failed = { .type = MSG_FAILED,
                          .epoch = 1,
                          .failed = { .kind = FAILURE_HANG, .still_ms = 8000 } };
    double told;

    run_job();
    beat_with(0, (struct msg_heartbeat){ .step = 1, .first_step = 1 });
    now += 3000;
    beat_with(0,
              (struct msg_heartbeat){ .step = 5, .first_step = 1, .first_ms = 3000 });
    now += 7000; /* it has not moved since, and so may be found to hang */
    ck_assert_double_eq(sample_of("crun_job_productive_seconds_total", ""), 3);
    ck_assert_double_eq_tol(sample_of("crun_job_goodput_ratio", ""), 1, 1e-6);
    told = sample_of("crun_job_productive_seconds_total", "");
    failed.failed.at_ms = now;
    ck_assert_int_eq(send_to_registry(0, &failed), 0);
    ck_assert_double_lt(sample_of("crun_job_goodput_ratio", ""), 0.31);
    ck_assert_double_ge(sample_of("crun_job_productive_seconds_total", ""), told);
    ck_assert_double_ge(sample_of("crun_job_lost_seconds_total", "phase=\"detect\""),
                        7);
}

TEST(a_program_that_tells_no_steps_is_productive_up_to_now)
{
    run_job();
    now += 3000;
    ck_assert_double_eq(sample_of("crun_job_productive_seconds_total", ""), 3);
}

TEST(a_commit_counts_in_the_bucket_that_it_fits)
{
    commits = (struct histogram){ .sum_us = 0 };
    histogram_add(&commits, METRICS_COMMIT_UNIT_US, 100);
    histogram_add(&commits, METRICS_COMMIT_UNIT_US, 101);
    histogram_add(&commits, METRICS_COMMIT_UNIT_US, 2000000);
    write_metrics();
    ck_assert_ptr_nonnull(
        strstr(text, "crund_journal_fsync_seconds_bucket{le=\"0.0001\"} 1\n"
                     "crund_journal_fsync_seconds_bucket{le=\"0.0002\"} 2\n"));
    ck_assert_ptr_nonnull(strstr(text,
                                 "crund_journal_fsync_seconds_bucket{le=\"0.5\"} 2\n"
                                 "crund_journal_fsync_seconds_bucket{le=\"+Inf\"} 3\n"
                                 "crund_journal_fsync_seconds_sum 2.000201\n"
                                 "crund_journal_fsync_seconds_count 3\n"));
}

/* -- what is told of --------------------------------------------------------------- */

TEST(a_job_that_has_ended_is_shown_for_a_while)
{
    struct msg bye = { .type = MSG_BYE };

    run_job();
    report_event(0, MSG_FINISHED);
    report_event(1, MSG_FINISHED);
    send_to_registry(0, &bye);
    send_to_registry(1, &bye);
    ck_assert_double_eq(sample_of("crun_job_state", "state=\"done\""), 1);
    ck_assert_double_eq(sample_of("crun_job_result", "result=\"success\""), 1);
    ck_assert_double_eq(sample_of("crun_job_result", "result=\"failure\""), 0);
    now += METRICS_ENDED_SHOWN_MS - 1;
    ck_assert_double_eq(sample_of("crun_job_state", "state=\"done\""), 1);
    now++;
    ck_assert_double_eq(sample_of("crun_job_state", "state=\"done\""), -1);
    ck_assert_ptr_null(strstr(text, "run_id"));
    ck_assert_ptr_nonnull(strstr(text, "\ncrund_jobs{state=\"done\"} 1\n"));
}

TEST(no_two_samples_have_the_same_labels)
{
    struct msg again;

    run_job();
    registry_disconnect(g, link_of[1].peer, now);
    link_of[1].peer = NULL;
    ck_assert_double_eq(sample_of("crun_node_connected", "node=\"node-1\""), 0);
    greet_registry(3, PEER_AGENT);
    again = join_message(1, "resnet");
    again.join.incarnation.byte[0] ^= 1;
    ck_assert_int_eq(send_to_registry(3, &again), 0);
    ck_assert_double_eq(sample_of("crun_node_connected", "node=\"node-1\""), 1);
    ck_assert_ptr_null(strstr(strstr(text, "crun_node_connected{") + 1,
                              "node=\"node-1\"} 0\n"
                              "crun_node_connected"));
}

TEST(a_viewer_is_told_of_its_jobs_alone)
{
    struct job_owner other = { .uid = 1001 }, own = { .uid = 1000 };
    struct metrics_view view = { .registry = g, .viewer = &other, .now_ms = now };
    size_t size;
    FILE *out;

    run_job();
    for (int i = 0; i < 2; i++) {
        view.viewer = i ? &own : &other;
        view.now_ms = now;
        free(text);
        out = open_memstream(&text, &size);
        metrics_write(&view, out);
        fclose(out);
        ck_assert_int_eq(strstr(text, "run_id") != NULL, i);
        ck_assert_ptr_null(strstr(text, "crund_"));
    }
}
