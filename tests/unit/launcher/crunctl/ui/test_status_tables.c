/* SPDX-License-Identifier: MIT */
/* What crunctl status prints of the checkpoints in memory of a job. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/crunctl/ui/status_tables.h"
#include "launcher/crunctl/ui/terminal.h"
#include "tests/worlds/check_main.h"

#define TITLE "checkpoints in memory: "

struct held {
    int32_t group_rank;
    uint64_t heard_ms;
    struct msg_memory memory;
};

/* The line of a job of these three nodes, "" if it has none. */
static const char *line_of(enum job_state state, const struct held held[3])
{
    static char line[256];
    struct job_views v = { .count = 0 };
    struct terminal t = { .colours = false };
    char *text, *at;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    job_views_add(&v, &(struct msg_job_status){ .run_id = "resnet", .state = state });
    for (unsigned i = 0; i < 3; i++)
        job_views_add_node(
            &v, &(struct msg_node_status){ .group_rank = held[i].group_rank,
                                           .heard_ms = held[i].heard_ms,
                                           .progress = { .memory = held[i].memory } });
    job_view_print(&v.job[0], &t, out);
    fclose(out);
    at = strstr(text, TITLE);
    snprintf(line, sizeof(line), "%.*s", at ? (int)strcspn(at, "\n") : 0, at ? at : "");
    free(text);
    job_views_clear(&v);
    return line;
}

/* The last node is a spare, which has a copy for the first one. */
static const struct held all[] = {
    { 0, 100, { .step = 1200, .copied = 1198, .bytes = 1 << 30, .age_ms = 50 } },
    { 1, 2000, { .step = 1199, .copied = 1199, .bytes = 1 << 30, .age_ms = 400 } },
    { -1, 4000, { .bytes = 1 << 29 } },
};

TEST(the_step_is_the_one_that_all_nodes_have)
{
    ck_assert_str_eq(line_of(JOB_RUNNING, all),
                     TITLE "step 1199, saved 2.4 s ago, copies of step 1198 on other "
                           "nodes, 2.5 GiB in all");
    ck_assert_str_eq(line_of(JOB_STOPPING, all), "");
}

TEST(a_node_that_has_none_counts)
{
    struct held some[] = { all[0], all[1], all[2] };

    some[1].memory.copied = 0;
    ck_assert_str_eq(line_of(JOB_RUNNING, some),
                     TITLE "step 1199, saved 2.4 s ago, 2.5 GiB in all");
    some[1].memory = (struct msg_memory){ .bytes = 0 };
    ck_assert_str_eq(line_of(JOB_RUNNING, some),
                     TITLE "no step of all nodes, 1.5 GiB in all");
    some[0].memory = (struct msg_memory){ .bytes = 3 << 19 };
    some[2].memory.bytes = 0;
    ck_assert_str_eq(line_of(JOB_RUNNING, some),
                     TITLE "no step of all nodes, 1.5 MiB in all");
    some[0].memory.bytes = 0;
    ck_assert_str_eq(line_of(JOB_RUNNING, some), "");
}
