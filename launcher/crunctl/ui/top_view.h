/* SPDX-License-Identifier: MIT */
#pragma once

#include "launcher/crunctl/ui/top_look.h"
#include "launcher/crunctl/ui/top_rows.h"

/*
 * How the user looks: what is selected, open, sorted and searched for, and what each
 * key does to that. Pure.
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
    bool ended_turned;     /* they are folded while a job runs, unless the user wants */
    struct top_fold *fold; /* of jobs that the user has opened or closed */
    size_t folds;
    char opened[TOP_NAME_BYTES]; /* the node or job of the page */
    size_t height;               /* of the rows or the page, as last drawn */
    size_t lines;                /* of the page, likewise */
};

void top_view_fini(struct top_view *v);

/* Whether the user has opened or closed it; NULL: neither. */
struct top_fold *top_view_fold(const struct top_view *v, const char *job);

/* The rows of a look, and where the selected one is among them now. */
void top_view_arrange(struct top_view *v, const struct top_look *look,
                      struct top_rows *rows);

/* key: see top_keys.h. */
void top_view_press(struct top_view *v, const struct top_look *look,
                    const struct top_rows *rows, int key);

const char *top_sort_name(enum top_sort sort);
