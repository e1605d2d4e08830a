/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_answers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/logs/kept_output.h"
#include "agent/logs/limits.h"
#include "agent/logs/log_file_reads.h"
#include "agent/logs/log_question.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/base64.h"

#define LOG_FOLLOWERS_MAX 64

/* A crunctl that follows, and until when its next question is expected. It may ask in
 * parts, each of which is known by its first rank here. */
struct log_follower {
    uint64_t id, epoch, until_ms;
    uint32_t local_rank;
    bool has_all; /* of that epoch */
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
    struct log_follower follower[LOG_FOLLOWERS_MAX];
    unsigned followers;
    void (*shown)(void *arg); /* NULL: nothing waits for the followers */
    void *shown_arg;
    uint64_t shown_by_ms; /* at the latest */
    struct loop_timer shown_timer;
};

/* Those whose attempt is forgotten have no stream. */
static const struct kept_stream *find_kept_stream(const struct log_answers *a,
                                                  const struct log_question *q,
                                                  const struct wanted_stream *s)
{
    const struct kept_attempt *attempt = kept_output_find(a->kept, q->epoch);

    return attempt ? &attempt->worker[s->local_rank][s->which] : NULL;
}

/* Of the stream, from its offset on. */
static struct msg piece_make(const struct log_answers *a, const struct log_question *q,
                             const struct wanted_stream *s)
{
    const struct kept_attempt *attempt = kept_output_find(a->kept, q->epoch);
    const struct kept_stream *kept = &attempt->worker[s->local_rank][s->which];
    struct kept_view view = kept_stream_view(kept);

    return (struct msg){ .type = MSG_LOGS,
                         .logs = { .ask = q->number,
                                   .kind = kept->kind,
                                   .rank = attempt->first_rank + s->local_rank,
                                   .stream = s->which == LOG_OUT ? OUTPUT_STDOUT
                                                                 : OUTPUT_STDERR,
                                   .of_epoch = q->epoch,
                                   .offset = s->offset,
                                   .next = s->offset,
                                   .size = view.size,
                                   .ended = view.ended } };
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
                      struct wanted_stream *s, const struct log_ring *ring)
{
    uint64_t start = log_ring_start(ring);
    char *data = xmalloc(q->share);

    if (s->offset < start) /* what is between them is lost */
        s->offset = start;
    if (s->offset > ring->total) /* of another stream */
        s->offset = ring->total;
    send_text(a, q, s, data, log_ring_copy(ring, s->offset, data, q->share));
    free(data);
}

/* What a full disk has not taken: told at the first and with the last of the stream. */
static void send_unwritten(const struct log_answers *a, const struct log_question *q,
                           const struct wanted_stream *s, size_t size)
{
    const struct kept_view view = kept_stream_view(find_kept_stream(a, q, s));
    struct msg m = piece_make(a, q, s);

    if (view.parts.lost == 0 ||
        !(s->is_new || (view.ended && s->offset + size >= view.size)))
        return;
    m.logs.kind = LOGS_FAILED;
    m.logs.size = s->offset; /* nothing is passed over */
    snprintf(m.logs.where, sizeof(m.logs.where), "%" PRIu64 " bytes of %s lost: %s",
             view.parts.lost,
             s->which == LOG_OUT ? "standard output" : "standard error",
             view.parts.lost_errno ? strerror(view.parts.lost_errno) : "too slow");
    a->answer(a->arg, &m);
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

typedef bool stream_test(const struct wanted_stream *s, const struct kept_stream *kept);

/* Those whose attempt is forgotten are nowhere: kept is NULL. */
static bool question_has(const struct log_answers *a, const struct log_question *q,
                         stream_test *test)
{
    for (unsigned i = 0; i < q->count; i++)
        if (test(&q->stream[i], find_kept_stream(a, q, &q->stream[i])))
            return true;
    return false;
}

static bool stream_has_news(const struct wanted_stream *s,
                            const struct kept_stream *kept)
{
    struct kept_view view;

    if (!kept || s->is_new || kept->kind != LOGS_TEXT)
        return true;
    view = kept_stream_view(kept);
    return view.ended || view.size != s->offset;
}

static bool stream_is_pending(const struct wanted_stream *s,
                              const struct kept_stream *kept)
{
    return kept && kept_stream_view(kept).pending;
}

static bool stream_needs_file(const struct wanted_stream *s,
                              const struct kept_stream *kept)
{
    return kept && kept->file && (s->lines || s->offset < kept_stream_view(kept).size);
}

static bool stream_has_more(const struct wanted_stream *s,
                            const struct kept_stream *kept)
{
    struct kept_view view;

    if (!kept || kept->kind != LOGS_TEXT)
        return false;
    view = kept_stream_view(kept);
    return !view.ended || s->offset < view.size;
}

static void expect_next(struct log_answers *a, const struct log_question *q)
{
    struct log_follower f = { .id = q->follower,
                              .epoch = q->epoch,
                              .until_ms = clock_ms() + LOG_FOLLOWER_MS,
                              .has_all = !question_has(a, q, stream_has_more) };

    if (!q->follows || q->count == 0 || a->followers == LOG_FOLLOWERS_MAX)
        return;
    f.local_rank = q->stream[0].local_rank;
    a->follower[a->followers++] = f;
}

/* read: of its file, if that was read; errnum: why no file can be read. */
static void answer_stream(const struct log_answers *a, const struct log_question *q,
                          struct wanted_stream *s, const struct log_file_read *read,
                          int errnum)
{
    const struct kept_stream *kept = find_kept_stream(a, q, s);

    /* Of the attempt before, one who follows must know that more will come. */
    if (!kept || (!read && !stream_has_news(s, kept) &&
                  (q->epoch == a->kept->now.epoch || kept_stream_view(kept).ended)))
        return;
    if (read) {
        s->offset = read->offset;
        errnum = read->errnum;
    } else if (!stream_needs_file(s, kept)) {
        errnum = 0;
    }
    if (errnum || kept->kind != LOGS_TEXT)
        send_kind(a, q, s, errnum);
    else if (kept->file) { /* later output answers the next question */
        send_unwritten(a, q, s, read ? read->size : 0);
        send_text(a, q, s, read ? read->data : "", read ? read->size : 0);
    } else
        send_ring(a, q, s, &kept->ring);
}

/* list: of the streams whose file was read, in order. */
static void question_answer(struct log_answers *a, struct log_question *q,
                            const struct log_file_read *list, int errnum)
{
    struct msg last = { .type = MSG_LOGS, .logs = { .ask = q->number, .last = true } };

    for (unsigned i = 0; i < q->count; i++)
        answer_stream(a, q, &q->stream[i], q->stream[i].is_read ? list++ : NULL,
                      errnum);
    a->answer(a->arg, &last);
    expect_next(a, q);
}

/* Returns 1; or 0: no file is needed; or -1: no thread can be started. */
static int read_files(struct log_answers *a, struct log_question *q)
{
    struct log_file_read *list = xcalloc(q->count + 1, sizeof(*list));
    size_t count = 0;

    for (unsigned i = 0; i < q->count; i++) {
        struct wanted_stream *s = &q->stream[i];
        const struct kept_stream *kept = find_kept_stream(a, q, s);

        if (!stream_needs_file(s, kept))
            continue;
        list[count++] = (struct log_file_read){ .path = xstrdup(kept->path),
                                                .parts = kept_stream_view(kept).parts,
                                                .offset = s->offset,
                                                .lines = s->lines,
                                                .size = q->share };
        s->is_read = true;
    }
    if (count > 0 && log_file_reads_start(a->files, list, count))
        return 1;
    for (unsigned i = 0; i < q->count; i++)
        q->stream[i].is_read = false;
    if (count == 0)
        free(list);
    return count == 0 ? 0 : -1;
}

/* -- the end of the output -------------------------------------------------------- */

/* Until when a follower that lacks output of this epoch may ask; 0: none does. */
static uint64_t followers_until(const struct log_answers *a)
{
    uint64_t until = 0, now = clock_ms();

    if (a->reading || a->waiting_count > 0)
        return UINT64_MAX;
    for (unsigned i = 0; i < a->followers; i++) {
        const struct log_follower *f = &a->follower[i];

        if (f->until_ms > now && f->until_ms > until &&
            !(f->has_all && f->epoch == a->kept->now.epoch))
            until = f->until_ms;
    }
    return until;
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

/* Without waiting, a question gets what is on its way, too, if that comes soon. */
static bool question_is_ready(const struct log_answers *a, const struct log_question *q)
{
    return clock_ms() >= q->until_ms ||
           (q->follows ? q->count == 0 || question_has(a, q, stream_has_news)
                       : !question_has(a, q, stream_is_pending));
}

/* Answers it and frees it, or leaves it to the files. */
static void question_finish(struct log_answers *a, struct log_question *q)
{
    int rc = read_files(a, q);

    if (rc > 0) {
        a->reading = q;
        return;
    }
    question_answer(a, q, NULL, rc < 0 ? EAGAIN : 0);
    log_question_free(q);
}

static void arm_for_waiting(struct log_answers *a)
{
    uint64_t next = UINT64_MAX, soon = clock_ms() + LOG_ANSWER_NEWS_MS;

    for (unsigned i = 0; i < a->waiting_count; i++) {
        if (a->waiting[i]->until_ms < next)
            next = a->waiting[i]->until_ms;
        /* what was pending may have been written since it was looked for: nothing but
         * this look brings that answer */
        if (soon < next && (question_has(a, a->waiting[i], stream_is_pending) ||
                            question_is_ready(a, a->waiting[i])))
            next = soon;
    }
    if (next == UINT64_MAX || a->reading)
        loop_timer_cancel(&a->timer);
    else
        loop_timer_arm(&a->timer, next);
}

/* One at a time: the files may not answer. */
static void answer_waiting(struct log_answers *a)
{
    for (unsigned i = 0; i < a->waiting_count && !a->reading;) {
        struct log_question *q = a->waiting[i];

        if (question_is_ready(a, q)) {
            a->waiting[i] = a->waiting[--a->waiting_count];
            question_finish(a, q);
        } else {
            i++;
        }
    }
    arm_for_waiting(a);
    if (a->shown && followers_until(a) == 0)
        loop_timer_arm(&a->shown_timer, clock_ms());
}

static void on_answer_time(void *arg)
{
    answer_waiting(arg);
}

static void on_files_read(void *arg, struct log_file_read *list, size_t count)
{
    struct log_answers *a = arg;
    struct log_question *q = a->reading;

    a->reading = NULL;
    question_answer(a, q, list, 0);
    log_question_free(q);
    answer_waiting(a);
}

/* It has asked again, or is gone. Its other parts stay, unless they are of an epoch
 * before. */
static void forget_follower(struct log_answers *a, uint64_t id,
                            const struct log_question *q)
{
    uint64_t now = clock_ms();

    for (unsigned i = 0; i < a->followers;) {
        const struct log_follower *f = &a->follower[i];

        if (f->until_ms <= now ||
            (f->id == id &&
             (!q || f->epoch < q->epoch || f->local_rank == q->stream[0].local_rank)))
            a->follower[i] = a->follower[--a->followers];
        else
            i++;
    }
}

static void drop_follower(struct log_answers *a, uint64_t id)
{
    forget_follower(a, id, NULL);
    for (unsigned i = 0; i < a->waiting_count; i++)
        if (a->waiting[i]->follower == id) {
            a->waiting[i]->follows = false;
            a->waiting[i]->until_ms = 0;
        }
    if (a->reading && a->reading->follower == id)
        a->reading->follows = false;
}

void log_answers_ask(struct log_answers *a, const struct msg_ask_logs *ask)
{
    struct log_question *q;

    if (*ask->ranks) {
        q = log_question_make(a->kept, ask);
        if (q->follows && q->count > 0) /* else its ranks are of other nodes */
            forget_follower(a, q->follower, q);
        if (a->waiting_count == LOG_ANSWERS_WAITING_MAX) {
            question_answer(a, q, NULL, EAGAIN);
            log_question_free(q);
            return;
        }
        a->waiting[a->waiting_count++] = q;
    } else if (ask->follower) {
        drop_follower(a, ask->follower);
    } else {
        for (unsigned i = 0; i < a->waiting_count; i++)
            if (a->waiting[i]->number == ask->ask)
                a->waiting[i]->until_ms = 0;
    }
    answer_waiting(a);
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
    answer_waiting(a);
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
        log_question_free(a->waiting[i]);
    log_question_free(a->reading);
    log_file_reads_destroy(a->files);
    loop_timer_fini(&a->timer);
    loop_timer_fini(&a->shown_timer);
    free(a);
}
