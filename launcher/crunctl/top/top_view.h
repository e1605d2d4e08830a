/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_CRUNCTL_TOP_TOP_VIEW_H
#define LAUNCHER_CRUNCTL_TOP_TOP_VIEW_H

#include "launcher/crunctl/top/top_look.h"

/*
 * How the user looks: what is selected, open, sorted and searched for; what each key
 * does to that; and the rows that follow. Pure.
 */
enum top_sort {
    TOP_SORT_FAULT,
    TOP_SORT_NAME,
    TOP_SORT_STEP,
    TOP_SORT_RATE,
    TOP_SORT_LOSS,
    TOP_SORT_GPU,
    TOP_SORT_MEMORY,
    TOP_SORTS
};

enum top_page { TOP_LIST, TOP_JOB, TOP_NODE, TOP_LOG, TOP_STACKS, TOP_HELP };

enum top_row_kind {
    TOP_ROW_JOB,   /* its line */
    TOP_ROW_WHY,   /* what it waits for, or its last failure */
    TOP_ROW_CURVE, /* of its rate and loss */
    TOP_ROW_NODE,
    TOP_ROW_ENDED, /* of all jobs that have ended */
    TOP_ROW_PAST,  /* one of them */
};

struct top_row {
    enum top_row_kind kind;
    size_t job, node; /* where they are in the look */
    unsigned faults;  /* of a job: how many of its nodes */
    bool is_open;
};

struct top_rows {
    struct top_row *row;
    size_t count, room;
};

struct top_fold {
    char name[TOP_NAME_BYTES];
    bool is_open;
};

struct top_view {
    enum top_page page;
    enum top_sort sort;
    bool reversed, faults_only, types_filter, quits;
    char filter[64];
    char chosen[TOP_NAME_BYTES]; /* the selected row; "": the first one */
    size_t at, first;            /* it, and the first row on the screen */
    size_t scroll;               /* lines of a page that are above the screen */
    bool ended_open;
    struct top_fold *fold; /* of jobs that the user has opened or closed */
    size_t folds;
    char opened[TOP_NAME_BYTES]; /* the node or job of the page */
    size_t height;               /* of the rows or the page, as last drawn */
    size_t lines;                /* of the page, likewise */
};

void top_view_fini(struct top_view *v);

/* The rows of a look, and where the selected one is among them now. */
void top_view_arrange(struct top_view *v, const struct top_look *look,
                      struct top_rows *rows);

/* key: see top_keys.h. */
void top_view_press(struct top_view *v, const struct top_look *look,
                    const struct top_rows *rows, int key);

/* The job and the node that the page is of, NULL where it is none or gone. */
const struct job_view *top_view_opened(const struct top_view *v,
                                       const struct top_look *look,
                                       const struct msg_node_status **node,
                                       const struct top_job **more);

const char *top_sort_name(enum top_sort sort);

#endif
