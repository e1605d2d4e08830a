/* SPDX-License-Identifier: MIT */
#pragma once

#include "launcher/crunctl/ui/top_look.h"

/* The rows of the list, as the user wants to see a look. Pure; zero-initialise. */
struct top_view;

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

void top_rows_fini(struct top_rows *rows);
void top_rows_fill(struct top_rows *rows, const struct top_look *look,
                   const struct top_view *v);

/* Whether it can be selected. */
bool top_row_takes_cursor(const struct top_row *r);
/* In all looks the same. Returns buf. */
char *top_row_name(const struct top_row *r, const struct top_look *look, char *buf,
                   size_t size);
