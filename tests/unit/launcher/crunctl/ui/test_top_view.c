/* SPDX-License-Identifier: MIT */
/* The rows of crunctl top, what keys do to them, and the frames that show them. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/crunctl/ui/top_frame.h"
#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"

static struct top_look *look;
static struct top_view view;
static struct top_rows rows;

static void add_job(const char *name, enum job_state state, unsigned nodes)
{
    struct msg_job_status s = { .state = state,
                                .epoch = 1,
                                .nodes = nodes,
                                .workers = 8 * nodes,
                                .reason = JOB_REASON_SUCCESS };

    snprintf(s.run_id, sizeof(s.run_id), "%s", name);
    job_views_add(&look->jobs, &s);
    for (unsigned i = 0; i < nodes; i++) {
        struct msg_node_status n = { .state = NODE_RUNNING,
                                     .connected = true,
                                     .group_rank = (int32_t)i,
                                     .first_rank = 8 * i,
                                     .workers = 8,
                                     .progress = {
                                         .step = 18230 + i,
                                         .steps = 62600,
                                         .steps_per_s = "11.2",
                                         .loss = "1.832",
                                         .gpus = { .count = 8,
                                                   .percent = 50,
                                                   .used_mib = 71 << 10,
                                                   .total_mib = 80 << 10 } } };

        snprintf(n.host, sizeof(n.host), "%s-n%u", name, i);
        job_views_add_node(&look->jobs, &n);
    }
}

/* What is not in the views: names and curves. */
static void name_jobs(void)
{
    free(look->more);
    look->more = xcalloc(look->jobs.count + 1, sizeof(*look->more));
    for (size_t i = 0; i < look->jobs.count; i++) {
        struct top_job *more = &look->more[i];

        more->culprit = (struct rank_range){ 1, 0 };
        top_job_name(&look->jobs.job[i], more->name, sizeof(more->name));
    }
    top_view_arrange(&view, look, &rows);
}

static void begin(void)
{
    look = xcalloc(1, sizeof(*look));
    view = (struct top_view){ .height = 20 };
    add_job("train", JOB_RUNNING, 3);
    add_job("old", JOB_DONE, 0);
    add_job("older", JOB_DONE, 0);
    name_jobs();
}

static void end(void)
{
    top_look_free(look);
    top_view_fini(&view);
    free(rows.row);
    rows = (struct top_rows){ .count = 0 };
}

FIXTURE(begin, end);

/* "train train-n0 train-n1* train-n2 ended", with a star at the selected one */
static const char *listed(void)
{
    static char text[1024];
    size_t used = 0;

    *text = '\0';
    for (size_t i = 0; i < rows.count; i++) {
        const struct top_row *r = &rows.row[i];
        const struct job_view *job = &look->jobs.job[r->job];
        const char *name = r->kind == TOP_ROW_NODE    ? job->node[r->node].host
                           : r->kind == TOP_ROW_ENDED ? "ended"
                           : r->kind == TOP_ROW_WHY   ? "why"
                           : r->kind == TOP_ROW_CURVE ? "curve"
                                                      : job->name;

        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s%s",
                                 i ? " " : "", name, i == view.at ? "*" : "");
    }
    return text;
}

static void press(const char *keys)
{
    for (; *keys; keys++) {
        top_view_press(&view, look, &rows, (unsigned char)*keys);
        top_view_arrange(&view, look, &rows);
    }
}

TEST(what_has_a_fault_is_on_top)
{
    struct msg_node_status *n = look->jobs.job[0].node;

    ck_assert_str_eq(listed(), "train* train-n0 train-n1 train-n2 ended");
    n[2].slowness = 180;
    n[1].progress.xid = 79;
    name_jobs();
    ck_assert_str_eq(listed(), "train* train-n1 train-n2 train-n0 ended");
    n[2].connected = false;
    name_jobs();
    ck_assert_str_eq(listed(), "train* train-n2 train-n1 train-n0 ended");
    press("f");
    ck_assert_str_eq(listed(), "train* train-n2 train-n1");
    snprintf(n[0].progress.note, sizeof(n[0].progress.note), "waits 4 %% of the time");
    name_jobs(); /* is none */
    ck_assert_str_eq(listed(), "train* train-n2 train-n1");
}

TEST(a_job_without_steps_may_have_nothing_to_do)
{
    struct msg_node_status n = { .state = NODE_RUNNING, .connected = true };
    struct job_view job = { .status.state = JOB_RUNNING, .node = &n, .nodes = 1 };
    struct top_job more = { .still_ms = 20000 };

    ck_assert_uint_eq(top_job_fault(&job, &more), 0);
    n.progress.step = 1;
    ck_assert_uint_ne(top_job_fault(&job, &more), 0);
}

TEST(the_rank_that_all_wait_for_is_a_fault_of_its_node)
{
    look->more[0].still_ms = 20000;
    look->more[0].culprit = (struct rank_range){ 17, 17 };
    snprintf(look->more[0].awaited, sizeof(look->more[0].awaited), "wait for rank 17");
    top_view_arrange(&view, look, &rows);
    ck_assert_str_eq(listed(), "train* why train-n2 train-n0 train-n1 ended");
}

TEST(the_cursor_stays_with_its_row)
{
    press("jj");
    ck_assert_str_eq(listed(), "train train-n0 train-n1* train-n2 ended");
    look->jobs.job[0].node[2].slowness = 150;
    name_jobs();
    ck_assert_str_eq(listed(), "train train-n2 train-n0 train-n1* ended");
    look->jobs.job[0].nodes = 1; /* it is gone */
    name_jobs();
    ck_assert_str_eq(listed(), "train train-n0 ended*");
    press("g");
    ck_assert_str_eq(listed(), "train* train-n0 ended");
    press("k");
    ck_assert_uint_eq(view.at, 0);
    press("G");
    ck_assert_str_eq(listed(), "train train-n0 ended*");
    press("j");
    ck_assert_uint_eq(view.at, 2);
}

TEST(a_job_is_folded_and_those_that_have_ended_are)
{
    press(" ");
    ck_assert_str_eq(listed(), "train* ended");
    press("j ");
    ck_assert_str_eq(listed(), "train ended* old older");
    press("j\r"); /* opens its page */
    ck_assert_int_eq(view.page, TOP_JOB);
    press("\033");
    ck_assert_int_eq(view.page, TOP_LIST);
    press(" ");
    ck_assert_str_eq(listed(), "train ended*");
    press("k ");
    ck_assert_str_eq(listed(), "train* train-n0 train-n1 train-n2 ended");
}

TEST(many_jobs_are_folded_at_first)
{
    job_views_clear(&look->jobs);
    for (unsigned i = 0; i < 9; i++)
        add_job("many", JOB_RUNNING, 1);
    name_jobs();
    ck_assert_uint_eq(rows.count, 9);
}

TEST(a_filter_shows_what_has_the_text)
{
    press("/-N1");
    ck_assert_str_eq(listed(), "train* train-n1");
    press("\x7f");
    ck_assert_str_eq(listed(), "train* train-n0 train-n1 train-n2");
    press("2\rq"); /* q is typed after the filter has been kept */
    ck_assert_str_eq(listed(), "train* train-n2");
    ck_assert(view.quits);
    press("\033");
    ck_assert_str_eq(listed(), "train* train-n0 train-n1 train-n2 ended");
    press("/old");
    ck_assert_str_eq(listed(), "ended* old older");
    press("\033/q");
    ck_assert_str_eq(listed(), "");
    press("\r\r jl/\033");
    ck_assert_int_eq(view.page, TOP_LIST);
}

TEST(columns_are_sorted_both_ways)
{
    struct msg_node_status *n = look->jobs.job[0].node;

    n[1].progress.gpus.percent = 7;
    n[0].progress.step = 20000;
    press(">>"); /* step: the slowest first */
    ck_assert_str_eq(listed(), "train* train-n1 train-n2 train-n0 ended");
    press("r");
    ck_assert_str_eq(listed(), "train* train-n0 train-n2 train-n1 ended");
    press("rsss");
    ck_assert_int_eq(view.sort, TOP_SORT_GPU);
    ck_assert_str_eq(listed(), "train* train-n1 train-n0 train-n2 ended");
    press("<<<<<<");
    ck_assert_int_eq(view.sort, TOP_SORT_MEMORY);
}

TEST(keys_open_pages_and_go_back)
{
    const struct msg_node_status *node;
    const struct top_job *more;

    press("j\r");
    ck_assert_int_eq(view.page, TOP_NODE);
    ck_assert_ptr_nonnull(top_look_find(look, view.opened, &node, &more));
    ck_assert_str_eq(node->host, "train-n0");
    press("l");
    ck_assert_int_eq(view.page, TOP_LOG);
    press("t");
    ck_assert_int_eq(view.page, TOP_STACKS);
    press("\033");
    ck_assert_int_eq(view.page, TOP_NODE);
    press("\033");
    ck_assert_int_eq(view.page, TOP_LIST);
    press("?");
    ck_assert_int_eq(view.page, TOP_HELP);
    press("\033t");
    ck_assert_int_eq(view.page, TOP_STACKS);
    look->jobs.job[0].nodes = 0;
    ck_assert_ptr_null(top_look_find(look, view.opened, &node, &more));
    press("q");
    ck_assert(view.quits);
}

TEST(the_selected_row_is_on_the_screen)
{
    view.height = 2;
    press("jjj");
    ck_assert_uint_eq(view.at, 3);
    ck_assert_uint_eq(view.first, 2);
    press("\x02"); /* a page up */
    ck_assert_uint_eq(view.at, 2);
    view.height = 10; /* the terminal has grown */
    top_view_arrange(&view, look, &rows);
    ck_assert_uint_eq(view.first, 0);
}

/* -- frames ----------------------------------------------------------------------- */

/* No line may be wider than the screen, and there are as many as it has. */
static char *frame(unsigned columns, unsigned height, bool utf8)
{
    struct terminal t = { .columns = columns, .utf8 = utf8 };
    unsigned lines = 0;
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    view.height = height - (view.page == TOP_LIST ? 4 : 2);
    top_view_arrange(&view, look, &rows);
    top_frame_print(&view, look, &rows, &t, out);
    fclose(out);
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        char *one = strndup(line, strcspn(line, "\n"));

        ck_assert_msg(terminal_text_width(one) <= columns, "%u columns: %s", columns,
                      one);
        for (const char *c = one; !utf8 && *c; c++)
            ck_assert_msg((unsigned char)*c < 0x80, "in ASCII: %s", one);
        free(one);
        lines++;
    }
    ck_assert_uint_eq(lines, height);
    return text;
}

static void expect_frame(unsigned columns, bool utf8, const char *wanted)
{
    char *text = frame(columns, 24, utf8);

    ck_assert_msg(strstr(text, wanted), "%s is not in:\n%s", wanted, text);
    free(text);
}

TEST(a_frame_fits_each_screen)
{
    static const unsigned widths[] = { 1, 20, 40, 60, 80, 100, 200 };

    look->jobs.job[0].node[1].progress.xid = 79;
    look->more[0].points = 2;
    look->more[0].rate[0] = look->more[0].loss[0] = 1;
    for (unsigned i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
        for (int page = TOP_LIST; page <= TOP_HELP; page++) {
            view.page = (enum top_page)page;
            free(frame(widths[i], 24, true));
            free(frame(widths[i], 5, false));
        }
}

TEST(a_frame_has_what_a_person_looks_for)
{
    expect_frame(80, true, "1 running");
    expect_frame(80, true, "  train-n0");
    expect_frame(80, true, "██··  50%   71G");
    expect_frame(80, false, "##..  50%   71G");
    expect_frame(80, true, "2 ended: 2 finished");
    expect_frame(60, true, "18,230    11.2");
    expect_frame(60, true, "q quit  ? help");
    view.page = TOP_HELP;
    expect_frame(80, true, "Esc back");
    view.page = TOP_LIST;
    look->more[0].still_ms = 42000;
    snprintf(look->more[0].awaited, sizeof(look->more[0].awaited),
             "all other ranks wait for rank 17");
    look->more[0].culprit = (struct rank_range){ 17, 17 };
    expect_frame(80, true, "no new step for 42 s: all other ranks wait for rank 17");
    expect_frame(80, true, "! train-n2 awaited");
}

TEST(a_node_shows_its_ranks_and_output)
{
    struct msg_stacks stacks = {
        .kind = STACKS_PYTHON,
        .waits = true,
        .ranks = "0-7",
        .brief = "all_reduce (train.py:91, in step)",
        .threads = "main thread\n  all_reduce (train.py:91)\n"
    };

    press("j\r");
    expect_frame(80, true, "asking the node");
    look->node = xcalloc(1, sizeof(*look->node));
    memcpy(look->node->name, view.opened, sizeof(view.opened));
    stack_groups_add(&look->node->stacks, &stacks);
    look->node->output = xcalloc(2, sizeof(*look->node->output));
    look->node->outputs = 1;
    look->node->output[0].rank = 5;
    look->node->output[0].text = xstrdup("one\ntwo\nthree\nfour\nfive\n");
    expect_frame(80, true, "rank 7 waits in all_reduce (train.py:91, in step)");
    memcpy(look->jobs.job[0].node[0].progress.gpus.each, "0:97 3:- 4 x 5:", 16);
    expect_frame(80, true,
                 "GPU 0    ███████████████████▍ 97 %\nGPU 3    ···················· -");
    expect_frame(80, true, "GPU 5    ···················· -");
    *look->jobs.job[0].node[0].progress.gpus.each = '\0';
    expect_frame(80, true, "last output\n[5]: two\n[5]: three\n[5]: four\n[5]: five\n");
    press("l");
    expect_frame(80, true, "last output\n[5]: one\n");
    press("t");
    expect_frame(80, true, "ranks 0-7 wait in all_reduce");
    expect_frame(80, true, "    all_reduce (train.py:91)");
}

TEST(a_job_shows_what_its_ranks_do_while_it_runs)
{
    struct msg_stacks stacks = {
        .kind = STACKS_PYTHON, .waits = true, .ranks = "0-7", .brief = "all_reduce"
    };
    char *text;

    press("\r");
    look->node = xcalloc(1, sizeof(*look->node));
    memcpy(look->node->name, view.opened, sizeof(view.opened));
    stack_groups_add(&look->node->stacks, &stacks);
    expect_frame(80, true, "\nranks\nranks 0-7 wait in all_reduce\n");
    look->jobs.job[0].status.state = JOB_STOPPING;
    text = frame(80, 24, true);
    ck_assert_ptr_null(strstr(text, "ranks 0-7 wait"));
    free(text);
}
