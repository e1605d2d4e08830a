/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_question.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/logs/limits.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/rank_ranges.h"

static void begin_at_tail(struct wanted_stream *s, const struct kept_stream *kept,
                          uint32_t tail)
{
    s->is_new = true;
    if (tail == UINT32_MAX) /* the oldest that there is */
        s->offset = 0;
    else if (!kept->file)
        s->offset = log_ring_find_tail(&kept->ring, tail);
    else
        s->offset = kept_stream_view(kept).size;
    s->lines = kept->file && tail != UINT32_MAX ? tail : 0;
}

static void question_add_stream(struct log_question *q, const struct msg_ask_logs *ask,
                                const struct kept_attempt *attempt,
                                struct wanted_stream s, bool has_offset)
{
    if (ask->of_epoch && ask->of_epoch != attempt->epoch) { /* from the beginning */
        s.offset = 0;
        s.is_new = true;
    } else if (!has_offset) {
        begin_at_tail(&s, &attempt->worker[s.local_rank][s.which], ask->tail);
    }
    q->stream[q->count++] = s;
}

static void question_add_rank(struct log_question *q, const struct msg_ask_logs *ask,
                              const struct kept_attempt *attempt, uint32_t local_rank,
                              const uint64_t offset[LOG_STREAMS], bool has_offset)
{
    for (int which = 0; which < LOG_STREAMS; which++)
        if (ask->stream != (which == LOG_OUT ? OUTPUT_STDERR : OUTPUT_STDOUT))
            question_add_stream(q, ask, attempt,
                                (struct wanted_stream){ .local_rank = local_rank,
                                                        .which = which,
                                                        .offset = offset[which] },
                                has_offset);
}

/* The next rank's; false: there are no more. */
static bool take_offsets(const char **text, uint64_t offset[LOG_STREAMS])
{
    int used = 0;

    offset[LOG_OUT] = offset[LOG_ERR] = 0;
    if (sscanf(*text, "%" SCNu64 ":%" SCNu64 "%n", &offset[LOG_OUT], &offset[LOG_ERR],
               &used) != 2)
        return false;
    *text += used;
    return true;
}

struct log_question *log_question_make(const struct kept_output *kept,
                                       const struct msg_ask_logs *ask)
{
    struct log_question *q = xcalloc(1, sizeof(*q));
    struct rank_ranges ranks = { .count = 0 };
    const struct kept_attempt *attempt = kept_output_find(kept, ask->of_epoch);
    const char *offsets = ask->offsets;
    uint64_t offset[LOG_STREAMS], asked;

    if (!attempt)
        attempt = &kept->now;
    q->number = ask->ask;
    q->epoch = attempt->epoch;
    q->follower = ask->follower;
    q->follows = ask->wait_ms > 0;
    q->until_ms = clock_ms() + (q->follows ? ask->wait_ms : LOG_SETTLE_MS);
    if (!attempt->epoch || !rank_ranges_parse(&ranks, ask->ranks))
        ranks.count = 0;
    asked = rank_ranges_size(&ranks);
    if (asked > LOGS_RANKS_PER_ASK)
        asked = ranks.count = 0;
    q->share = LOG_ANSWER_BYTES / LOG_STREAMS / (asked ? asked : 1);
    q->stream = xcalloc(asked * LOG_STREAMS + 1, sizeof(*q->stream));
    for (unsigned i = 0; i < ranks.count; i++)
        for (uint64_t r = ranks.range[i].first; r <= ranks.range[i].last; r++) {
            bool has_offset = take_offsets(&offsets, offset);

            if (r >= attempt->first_rank && r - attempt->first_rank < kept->workers)
                question_add_rank(q, ask, attempt, (uint32_t)r - attempt->first_rank,
                                  offset, has_offset);
        }
    rank_ranges_fini(&ranks);
    return q;
}

void log_question_free(struct log_question *q)
{
    if (q)
        free(q->stream);
    free(q);
}
