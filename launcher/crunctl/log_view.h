/* SPDX-License-Identifier: MIT */
#pragma once

#include "launcher/crunctl/ctl_client.h"
#include "launcher/crunctl/ui/log_lines.h"
#include "rendezvous/wire/protocol/rank_ranges.h"

/*
 * What crunctl logs has shown of each stream of each rank, and what an answer adds to
 * it: lines, and warnings of what cannot be shown.
 */
#define MISSING_NAMED_MAX 64

enum { OUT, ERR, STREAMS };

struct shown_stream {
    uint64_t offset; /* of what comes next */
    uint64_t stop;   /* its size at first */
    long long
        lack;      /* lines of --tail that have not come, if they may be out of reach */
    uint64_t lost; /* before what comes next; not reported yet */
    bool is_over, has_begun;
    bool is_gone; /* its file, and that has been reported */
    struct log_lines lines;
};

struct shown_rank {
    uint32_t rank;
    bool is_explained; /* why there is nothing of it */
    struct shown_stream stream[STREAMS];
};

struct log_view {
    struct ctl_client *c;
    const struct ctl_options *o;
    bool owns_client;
    struct shown_rank *rank; /* in rising order */
    size_t count, room;
    uint64_t epoch;
    struct rank_ranges wanted; /* empty: all */
    bool prefix;

    /* of one round of questions */
    unsigned answered; /* ranks that were seen */
    unsigned missed;   /* nodes that have not answered */
    bool has_text;
    bool is_unfinished; /* more of an epoch that is over will come */
    bool counts;        /* only whether there are several ranks: sets `prefix` */
    uint64_t job_epoch;
    uint64_t leave_ms; /* an epoch that is over; 0: it has text */

    char missing[MISSING_NAMED_MAX][HOST_NAME_MAX_BYTES + 1]; /* named already */
    unsigned missing_count;
};

/* The calls of ctl_client_ask give it each answer. */
void log_view_take(void *view, const struct msg *m);

/* NULL: nothing of it has come. */
struct shown_rank *log_view_find_rank(struct log_view *v, uint32_t rank);
/* Ends the lines that are shown in part. */
void log_view_finish_lines(struct log_view *v);
/* And begins anew, with another epoch. */
void log_view_forget_ranks(struct log_view *v);
