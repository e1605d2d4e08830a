/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/log_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/base64.h"

/* -- what is shown ----------------------------------------------------------------- */

static struct log_lines_style style_of(const struct log_view *v,
                                       const struct shown_rank *r, int which)
{
    return (struct log_lines_style){ .rank = r->rank,
                                     .epoch = v->epoch,
                                     .error = which == ERR,
                                     .prefix = v->prefix,
                                     .json = v->o->json };
}

void log_view_finish_lines(struct log_view *v)
{
    for (size_t i = 0; i < v->count; i++)
        for (int k = 0; k < STREAMS; k++) {
            struct log_lines_style style = style_of(v, &v->rank[i], k);

            log_lines_finish(&v->rank[i].stream[k].lines, &style);
        }
}

struct shown_rank *log_view_find_rank(struct log_view *v, uint32_t rank)
{
    size_t low = 0, high = v->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (v->rank[middle].rank == rank)
            return &v->rank[middle];
        if (v->rank[middle].rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static struct shown_rank *log_view_add_rank(struct log_view *v, uint32_t rank)
{
    size_t at = v->count;

    if (v->count == v->room) {
        v->room = v->room ? 2 * v->room : 16;
        v->rank = xrealloc(v->rank, v->room * sizeof(*v->rank));
    }
    while (at > 0 && v->rank[at - 1].rank > rank)
        at--;
    memmove(&v->rank[at + 1], &v->rank[at], (v->count++ - at) * sizeof(*v->rank));
    v->rank[at] = (struct shown_rank){ .rank = rank };
    for (int k = 0; k < STREAMS; k++)
        v->rank[at].stream[k].is_over = !(k == OUT ? !v->o->only_stderr
                                                   : !v->o->only_stdout);
    return &v->rank[at];
}

void log_view_forget_ranks(struct log_view *v)
{
    log_view_finish_lines(v);
    v->count = 0;
}

/* -- answers ----------------------------------------------------------------------- */

static const char *stream_text(int which)
{
    return which == OUT ? "standard output" : "standard error";
}

static void warn_missing(struct log_view *v, const struct msg_logs *m)
{
    char why[2 * sizeof(m->where)];

    v->missed++;
    for (unsigned i = 0; i < v->missing_count; i++)
        if (strcmp(v->missing[i], m->host) == 0)
            return;
    if (v->missing_count == MISSING_NAMED_MAX)
        return;
    snprintf(v->missing[v->missing_count++], sizeof(v->missing[0]), "%s", m->host);
    text_printable(m->where, why, sizeof(why));
    log_warn("%s does not show its output%s%s", m->host, *why ? ": " : "", why);
}

/* Why there is no text. */
static void warn_no_text(struct shown_rank *r, int which, const struct msg_logs *m)
{
    char where[2 * sizeof(m->where)];

    if (r->is_explained && m->kind != LOGS_FAILED)
        return;
    r->is_explained = true;
    text_printable(m->where, where, sizeof(where));
    if (m->kind == LOGS_PASSED)
        log_warn("rank %" PRIu32 " on %s writes %s to %s, and not through crun",
                 r->rank, m->host, stream_text(which),
                 *where ? where : "crun's own standard output");
    else if (m->kind == LOGS_NOWHERE)
        log_warn("%s of rank %" PRIu32 " is thrown away", stream_text(which), r->rank);
    else if (m->kind == LOGS_FAILED)
        log_warn("the log file of rank %" PRIu32 " on %s lacks output: %s", r->rank,
                 m->host, where);
    else
        log_warn("%s of rank %" PRIu32 " cannot be shown", stream_text(which), r->rank);
}

/* The output before the piece is not kept any more; --tail did not ask for it. A
 * file that is gone is reported at once, and again when the stream goes on or ends. */
static void warn_lost(struct log_view *v, struct shown_rank *r, int which,
                      const struct msg_logs *m)
{
    struct shown_stream *s = &r->stream[which];
    struct log_lines_style style = style_of(v, r, which);
    bool is_empty = m->next == m->offset, was_gone = s->is_gone && is_empty;

    if (m->offset > s->offset && (s->has_begun || v->o->tail < 0))
        s->lost += m->offset - s->offset;
    s->is_gone = is_empty && (was_gone || s->lost > 0);
    if (s->lost == 0 || (was_gone && !m->ended))
        return;
    if (s->lines.size > 0) /* its end is lost, and the next is no part of it */
        log_lines_add(&s->lines, &style, s->offset, "\n", 1);
    log_lines_finish(&s->lines, &style);
    fflush(stdout);
    log_warn("%" PRIu64 " bytes of %s of rank %" PRIu32 " are not kept any more",
             s->lost, stream_text(which), r->rank);
    s->lost = 0;
}

/* With --tail: of what there was at first. */
static void note_tail(const struct log_view *v, struct shown_rank *r, int which,
                      const char *bytes, size_t size)
{
    struct shown_stream *s = &r->stream[which];
    const char *end = bytes + size, *at = bytes;

    if (s->lack <= 0)
        return;
    for (; (at = memchr(at, '\n', (size_t)(end - at))); at++)
        s->lack--;
    if (s->offset < s->stop)
        return;
    if (size > 0 && end[-1] != '\n')
        s->lack--;
    if (s->lack > 0)
        log_warn("only %lld lines of %s of rank %" PRIu32
                 " are shown: what is before is not kept, or too far back",
                 v->o->tail - s->lack, stream_text(which), r->rank);
    s->lack = 0;
}

static void take_text(struct log_view *v, struct shown_rank *r, int which,
                      const struct msg_logs *m)
{
    struct shown_stream *s = &r->stream[which];
    struct log_lines_style style = style_of(v, r, which);
    char bytes[LOGS_PIECE_MAX];
    ssize_t n = base64_decode(m->text, bytes, sizeof(bytes));

    if (n < 0 || m->next != m->offset + (uint64_t)n ||
        (s->has_begun && m->offset < s->offset)) /* no answer of this version */
        return;
    warn_lost(v, r, which, m);
    if (!s->has_begun) {
        s->stop = m->size;
        s->lack = m->offset > 0 ? v->o->tail : 0;
    }
    s->has_begun = true;
    if (n > 0)
        log_lines_add(&s->lines, &style, m->offset, bytes, (size_t)n);
    v->has_text |= n > 0;
    v->is_unfinished |= n == 0 && !m->ended;
    s->offset = m->next;
    note_tail(v, r, which, bytes, (size_t)n);
    s->is_over = m->ended || (!v->o->follow && s->offset >= s->stop);
}

static void take_piece(struct log_view *v, const struct msg_logs *m)
{
    int which = m->stream == OUTPUT_STDERR ? ERR : OUT;
    struct shown_rank *r;

    if (m->of_epoch < v->epoch ||
        (v->wanted.count > 0 && !rank_ranges_have(&v->wanted, m->rank)))
        return;
    if (v->counts) {
        v->prefix |= m->rank > 0;
        return;
    }
    if (m->of_epoch > v->epoch && v->epoch > 0) { /* comes with its own round */
        v->job_epoch = m->of_epoch;
        return;
    }
    v->epoch = m->of_epoch;
    r = log_view_find_rank(v, m->rank);
    if (!r)
        r = log_view_add_rank(v, m->rank);
    v->answered++;
    if (r->stream[which].is_over)
        return;
    if (m->kind == LOGS_TEXT) {
        take_text(v, r, which, m);
        return;
    }
    if (m->kind != LOGS_MERGED || v->o->only_stderr)
        warn_no_text(r, which, m);
    if (m->kind != LOGS_FAILED)
        r->stream[which].is_over = true;
    else if (!r->stream[which].has_begun || m->next == r->stream[which].offset)
        r->stream[which].offset = m->size; /* no second try */
}

void log_view_take(void *view, const struct msg *m)
{
    struct log_view *v = view;

    if (m->type != MSG_RANK_LOGS)
        return;
    if (m->logs.kind == LOGS_MISSING)
        warn_missing(v, &m->logs);
    else
        take_piece(v, &m->logs);
}
