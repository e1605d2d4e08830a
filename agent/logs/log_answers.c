/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_answers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/logs/kept_output.h"
#include "agent/logs/limits.h"
#include "agent/logs/log_file_reads.h"
#include "agent/logs/log_followers.h"
#include "rendezvous/wire/protocol/base64.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/rank_ranges.h"

/* What a question asks of one stream. */
struct wanted_stream {
    uint32_t local_rank;
    int which;
    uint64_t offset;
    uint32_t lines; /* older ones to find in the file; 0: the offset is final */
    bool is_new;    /* crunctl knows nothing of it: answered in any case */
};

struct log_question {
    uint64_t number, epoch, until_ms;
    size_t share; /* the most of one stream */
    bool follows; /* another one comes soon after the answer */
    struct wanted_stream *stream;
    unsigned count;
};

struct log_answers {
    const struct kept_output *kept;
    void (*answer)(void *arg, const struct msg *m);
    void *arg;
    struct loop_timer timer;
    struct log_question *waiting[LOG_ANSWERS_WAITING_MAX];
    unsigned waiting_count;
    struct log_file_reads *files;
    struct log_question *reading; /* its files are being read; NULL: none */
    struct log_followers followers;
    void (*shown)(void *arg); /* NULL: nothing waits for the followers */
    void *shown_arg;
    uint64_t shown_by_ms; /* at the latest */
    struct loop_timer shown_timer;
};

static void question_free(struct log_question *q)
{
    if (q)
        free(q->stream);
    free(q);
}

/* Those whose attempt is forgotten have no stream. */
static const struct kept_stream *find_kept_stream(const struct log_answers *a,
                                                  const struct log_question *q,
                                                  const struct wanted_stream *s)
{
    const struct kept_attempt *attempt = kept_output_find(a->kept, q->epoch);

    return attempt ? &attempt->worker[s->local_rank][s->which] : NULL;
}

/* -- what is asked ---------------------------------------------------------------- */

static void begin_at_tail(struct wanted_stream *s, const struct kept_stream *kept,
                          uint32_t tail)
{
    uint32_t missing = 0;

    s->is_new = true;
    if (tail != UINT32_MAX)
        s->offset = log_ring_find_tail(&kept->ring, tail, &missing);
    else if (!kept->file)
        s->offset = log_ring_start(&kept->ring);
    if (missing > 0 && kept->file) {
        s->offset = 0;
        s->lines = missing;
    }
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

static bool stream_is_asked(const struct msg_ask_logs *ask, int which)
{
    return ask->stream != (which == LOG_OUT ? OUTPUT_STDERR : OUTPUT_STDOUT);
}

static void question_add_rank(struct log_question *q, const struct msg_ask_logs *ask,
                              const struct kept_attempt *attempt, uint32_t local_rank,
                              const uint64_t offset[LOG_STREAMS], bool has_offset)
{
    for (int which = 0; which < LOG_STREAMS; which++)
        if (stream_is_asked(ask, which))
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

static struct log_question *question_make(const struct log_answers *a,
                                          const struct msg_ask_logs *ask)
{
    struct log_question *q = xcalloc(1, sizeof(*q));
    struct rank_ranges ranks = { .count = 0 };
    const struct kept_attempt *attempt = kept_output_find(a->kept, ask->of_epoch);
    const char *offsets = ask->offsets;
    uint64_t offset[LOG_STREAMS], asked;

    if (!attempt)
        attempt = &a->kept->now;
    q->number = ask->ask;
    q->epoch = attempt->epoch;
    q->until_ms = clock_ms() + ask->wait_ms;
    q->follows = ask->wait_ms > 0;
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

            if (r >= attempt->first_rank && r - attempt->first_rank < a->kept->workers)
                question_add_rank(q, ask, attempt, (uint32_t)r - attempt->first_rank,
                                  offset, has_offset);
        }
    rank_ranges_fini(&ranks);
    return q;
}

/* -- answers ---------------------------------------------------------------------- */

static struct msg piece_make(const struct log_answers *a, const struct log_question *q,
                             const struct wanted_stream *s)
{
    const struct kept_attempt *attempt = kept_output_find(a->kept, q->epoch);
    const struct kept_stream *kept = &attempt->worker[s->local_rank][s->which];

    return (struct msg){ .type = MSG_LOGS,
                         .logs = { .ask = q->number,
                                   .kind = kept->kind,
                                   .rank = attempt->first_rank + s->local_rank,
                                   .stream = s->which == LOG_OUT ? OUTPUT_STDOUT
                                                                 : OUTPUT_STDERR,
                                   .of_epoch = q->epoch,
                                   .offset = s->offset,
                                   .next = s->offset,
                                   .size = kept->ring.total,
                                   .ended = kept->ended_ms > 0 } };
}

/* Moves the offset behind it. */
static void send_text(const struct log_answers *a, const struct log_question *q,
                      struct wanted_stream *s, const char *data, size_t size)
{
    struct msg m = piece_make(a, q, s);
    bool ended = m.logs.ended;

    do {
        size_t n = size < LOGS_PIECE_MAX ? size : LOGS_PIECE_MAX;

        m.logs.offset = m.logs.next;
        m.logs.next += n;
        m.logs.ended = ended && m.logs.next >= m.logs.size;
        base64_encode(data, n, m.logs.text);
        a->answer(a->arg, &m);
        data += n;
        size -= n;
    } while (size > 0);
    s->offset = m.logs.next;
}

static void send_ring(const struct log_answers *a, const struct log_question *q,
                      struct wanted_stream *s, const struct kept_stream *kept)
{
    uint64_t start = log_ring_start(&kept->ring);
    char *data = xmalloc(q->share);

    if (s->offset < start) /* what is between them is lost */
        s->offset = start;
    if (s->offset > kept->ring.total) /* of another stream */
        s->offset = kept->ring.total;
    send_text(a, q, s, data, log_ring_copy(&kept->ring, s->offset, data, q->share));
    free(data);
}

static void send_kind(const struct log_answers *a, const struct log_question *q,
                      const struct wanted_stream *s, int errnum)
{
    struct msg m = piece_make(a, q, s);
    ssize_t n;

    if (errnum) {
        m.logs.kind = LOGS_FAILED;
        snprintf(m.logs.where, sizeof(m.logs.where), "%s", strerror(errnum));
    } else if (m.logs.kind == LOGS_PASSED) {
        n = readlink("/proc/self/fd/1", m.logs.where, sizeof(m.logs.where) - 1);
        m.logs.where[n > 0 ? n : 0] = '\0';
    }
    a->answer(a->arg, &m);
}

static bool stream_has_news(const struct wanted_stream *s,
                            const struct kept_stream *kept)
{
    return s->is_new || kept->kind != LOGS_TEXT || kept->ended_ms ||
           kept->ring.total != s->offset;
}

static bool question_has_news(const struct log_answers *a, const struct log_question *q)
{
    for (unsigned i = 0; i < q->count; i++) {
        const struct kept_stream *kept = find_kept_stream(a, q, &q->stream[i]);

        if (!kept || stream_has_news(&q->stream[i], kept))
            return true;
    }
    return q->count == 0;
}

static bool stream_needs_file(const struct wanted_stream *s,
                              const struct kept_stream *kept)
{
    return kept->kind == LOGS_TEXT && kept->file &&
           (s->lines || s->offset < log_ring_start(&kept->ring));
}

static struct log_position position_of(const struct log_question *q,
                                       const struct wanted_stream *s)
{
    return (struct log_position){ .epoch = q->epoch,
                                  .offset = s->offset,
                                  .local_rank = s->local_rank,
                                  .which = s->which };
}

static bool stream_has_more(const struct wanted_stream *s,
                            const struct kept_stream *kept)
{
    return kept && kept->kind == LOGS_TEXT &&
           (!kept->ended_ms || s->offset < kept->ring.total);
}

/* The next question is known by the first stream of which there is more. */
static void expect_next(struct log_answers *a, const struct log_question *q)
{
    const struct wanted_stream *first = q->stream;
    struct log_position at;
    bool has_all = true;

    for (unsigned i = 0; i < q->count && has_all; i++)
        if (stream_has_more(&q->stream[i], find_kept_stream(a, q, &q->stream[i]))) {
            first = &q->stream[i];
            has_all = false;
        }
    if (!q->follows || q->count == 0)
        return;
    at = position_of(q, first);
    log_followers_add(&a->followers, &at, has_all, clock_ms());
}

/* list: of those that need their file, in order; NULL: none does any more. */
static void question_answer(struct log_answers *a, struct log_question *q,
                            const struct log_file_read *list, size_t count)
{
    struct msg last = { .type = MSG_LOGS, .logs = { .ask = q->number, .last = true } };
    size_t next = 0;

    for (unsigned i = 0; i < q->count; i++) {
        struct wanted_stream *s = &q->stream[i];
        const struct kept_stream *kept = find_kept_stream(a, q, s);
        const struct log_file_read *r = s->lines == UINT32_MAX && next < count
                                            ? &list[next++]
                                            : NULL;

        if (!kept || !stream_has_news(s, kept))
            continue;
        if (r)
            s->offset = r->offset;
        if (r && r->errnum)
            send_kind(a, q, s, r->errnum);
        if (kept->kind != LOGS_TEXT)
            send_kind(a, q, s, 0);
        else if (r && r->size > 0)
            send_text(a, q, s, r->data, r->size);
        else
            send_ring(a, q, s, kept);
    }
    a->answer(a->arg, &last);
    expect_next(a, q);
}

/* lines of those that are read becomes UINT32_MAX: a mark for question_answer. */
static bool read_files(struct log_answers *a, struct log_question *q)
{
    struct log_file_read *list = xcalloc(q->count + 1, sizeof(*list));
    size_t count = 0;

    for (unsigned i = 0; i < q->count; i++) {
        struct wanted_stream *s = &q->stream[i];
        const struct kept_stream *kept = find_kept_stream(a, q, s);

        if (!kept || !stream_needs_file(s, kept))
            continue;
        list[count++] = (struct log_file_read){ .path = xstrdup(kept->file),
                                                .offset = s->offset,
                                                .end = log_ring_start(&kept->ring),
                                                .follows = a->kept->in_parts,
                                                .lines = s->lines,
                                                .size = q->share };
        s->lines = UINT32_MAX;
    }
    if (count > 0)
        return log_file_reads_start(a->files, list, count);
    free(list);
    return false;
}

static bool question_needs_files(const struct log_answers *a,
                                 const struct log_question *q)
{
    for (unsigned i = 0; i < q->count; i++) {
        const struct kept_stream *kept = find_kept_stream(a, q, &q->stream[i]);

        if (kept && stream_needs_file(&q->stream[i], kept))
            return true;
    }
    return false;
}

/* -- the end of the output -------------------------------------------------------- */

/* 0: all followers have all that there is. */
static uint64_t followers_until(const struct log_answers *a)
{
    if (a->reading || a->waiting_count > 0)
        return UINT64_MAX;
    return log_followers_until(&a->followers, a->kept->now.epoch, clock_ms());
}

static void on_shown_time(void *arg)
{
    struct log_answers *a = arg;
    void (*shown)(void *arg) = a->shown;
    uint64_t until = followers_until(a);

    if (!shown)
        return;
    if (until > 0 && clock_ms() < a->shown_by_ms) { /* they have asked again since */
        loop_timer_arm(&a->shown_timer,
                       until < a->shown_by_ms ? until : a->shown_by_ms);
        return;
    }
    a->shown = NULL;
    shown(a->shown_arg);
}

static void check_shown(struct log_answers *a)
{
    if (a->shown && followers_until(a) == 0)
        loop_timer_arm(&a->shown_timer, clock_ms());
}

bool log_answers_finish(struct log_answers *a, void (*shown)(void *arg), void *arg)
{
    log_answers_begin(a);
    if (followers_until(a) == 0)
        return false;
    a->shown = shown;
    a->shown_arg = arg;
    a->shown_by_ms = clock_ms() + LOG_SHOWN_MS;
    loop_timer_arm(&a->shown_timer, clock_ms());
    return true;
}

void log_answers_begin(struct log_answers *a)
{
    a->shown = NULL;
    loop_timer_cancel(&a->shown_timer);
}

/* -- the order of questions ------------------------------------------------------- */

static void remove_waiting(struct log_answers *a, unsigned i)
{
    a->waiting[i] = a->waiting[--a->waiting_count];
}

/* Answers it and frees it, or leaves it to the files. False: it must wait for them. */
static bool question_finish(struct log_answers *a, struct log_question *q)
{
    bool needs_files = question_needs_files(a, q);

    if (needs_files && log_file_reads_busy(a->files))
        return false;
    if (needs_files && read_files(a, q)) {
        a->reading = q;
        return true;
    }
    question_answer(a, q, NULL, 0);
    question_free(q);
    return true;
}

static void arm_for_waiting(struct log_answers *a)
{
    uint64_t next = UINT64_MAX;

    for (unsigned i = 0; i < a->waiting_count; i++)
        if (a->waiting[i]->until_ms < next)
            next = a->waiting[i]->until_ms;
    if (next == UINT64_MAX || a->reading)
        loop_timer_cancel(&a->timer);
    else
        loop_timer_arm(&a->timer, next);
}

/* now_ms UINT64_MAX: without waiting any longer. */
static void answer_waiting(struct log_answers *a, uint64_t now_ms)
{
    for (unsigned i = 0; i < a->waiting_count;) {
        struct log_question *q = a->waiting[i];

        if ((now_ms >= q->until_ms || question_has_news(a, q)) && question_finish(a, q))
            remove_waiting(a, i);
        else
            i++;
    }
    arm_for_waiting(a);
    check_shown(a);
}

static void on_answer_time(void *arg)
{
    answer_waiting(arg, clock_ms());
}

static void on_files_read(void *arg, struct log_file_read *list, size_t count)
{
    struct log_answers *a = arg;
    struct log_question *q = a->reading;

    a->reading = NULL;
    question_answer(a, q, list, count);
    question_free(q);
    answer_waiting(a, clock_ms());
}

static void question_hurry(struct log_answers *a, uint64_t number)
{
    for (unsigned i = 0; i < a->waiting_count; i++)
        if (a->waiting[i]->number == number)
            a->waiting[i]->until_ms = 0;
    answer_waiting(a, clock_ms());
}

static void note_return(struct log_answers *a, const struct log_question *q,
                        bool from_beginning)
{
    struct log_position *list = xcalloc(q->count + 1, sizeof(*list));

    for (unsigned i = 0; i < q->count; i++)
        list[i] = position_of(q, &q->stream[i]);
    if (q->follows && q->count > 0) /* else its ranks are of other nodes */
        log_followers_remove(&a->followers, list, from_beginning ? 0 : q->count);
    free(list);
}

void log_answers_ask(struct log_answers *a, const struct msg_ask_logs *ask)
{
    struct log_question *q;

    if (!*ask->ranks) {
        question_hurry(a, ask->ask);
        return;
    }
    q = question_make(a, ask);
    note_return(a, q, !ask->of_epoch);
    if (a->waiting_count == LOG_ANSWERS_WAITING_MAX) {
        question_answer(a, q, NULL, 0);
        question_free(q);
        return;
    }
    a->waiting[a->waiting_count++] = q;
    answer_waiting(a, clock_ms());
}

void log_answers_note(struct log_answers *a)
{
    uint64_t soon;

    if (a->waiting_count == 0 || a->reading)
        return;
    soon = clock_ms() + LOG_ANSWER_NEWS_MS;
    if (!a->timer.armed || a->timer.at_ms > soon)
        loop_timer_arm(&a->timer, soon);
}

void log_answers_note_end(struct log_answers *a)
{
    answer_waiting(a, clock_ms());
}

/* -- lifetime --------------------------------------------------------------------- */

struct log_answers *log_answers_create(struct loop *loop,
                                       const struct kept_output *kept,
                                       void (*answer)(void *arg, const struct msg *m),
                                       void *arg)
{
    struct log_answers *a = xcalloc(1, sizeof(*a));

    a->kept = kept;
    a->answer = answer;
    a->arg = arg;
    a->files = log_file_reads_create(loop, on_files_read, a);
    loop_timer_init(&a->timer, loop, on_answer_time, a);
    loop_timer_init(&a->shown_timer, loop, on_shown_time, a);
    return a;
}

void log_answers_destroy(struct log_answers *a)
{
    if (!a)
        return;
    for (unsigned i = 0; i < a->waiting_count; i++)
        question_free(a->waiting[i]);
    question_free(a->reading);
    log_file_reads_destroy(a->files);
    loop_timer_fini(&a->timer);
    loop_timer_fini(&a->shown_timer);
    free(a);
}
