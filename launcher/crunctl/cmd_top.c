/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/crunctl/ctl_client.h"
#include "launcher/crunctl/ctl_views.h"
#include "launcher/crunctl/ui/top.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/base64.h"
#include "rendezvous/wire/protocol/proto.h"

/*
 * crunctl top: asks what its screen (launcher/crunctl/ui/) shows, as other commands
 * do: each question finds its job and opens a new connection, so that none outlives a
 * rendezvous.
 */
#define TAIL_MOST 64 /* lines of each stream, as far as one piece holds them */

struct top_questions {
    const struct ctl_options *o;
    ctl_run_fn *run;
};

/* A command that asks for a job, with its answer. */
struct top_question {
    const struct job_view *job;
    const char *ranks;
    cJSON *history;
    struct stack_groups *stacks;
    struct top_node *node;
    unsigned tail, cut; /* lines that are asked for; streams that have more */
};

static int run_question(const struct top_questions *q, const struct ctl_command *c,
                        struct top_question *question, struct err *e)
{
    static char *const no_words[] = { NULL };
    struct ctl_options own = *q->o;
    char pid[16];

    snprintf(pid, sizeof(pid), "%" PRIu32, question->job->pid);
    own.run_id = question->job->pid ? pid : question->job->status.run_id;
    own.words = no_words;
    own.answer = question;
    return q->run(c, &own, e) == CTL_EXIT_OK ? 0 : -1;
}

/* -- all jobs --------------------------------------------------------------------- */

static int ask_jobs(void *arg, struct job_views *v, struct err *e)
{
    const struct top_questions *q = arg;
    struct ctl_options own = *q->o;
    char *said = NULL;
    size_t size;
    int rc;

    own.answer = v;
    own.out = open_memstream(&said, &size); /* why there is no job at all */
    if (!own.out)
        return err_set(e, "out of memory");
    rc = q->run(&ctl_top, &own, e) == CTL_EXIT_OK ? 0 : -1;
    fclose(own.out);
    free(said);
    return rc;
}

/* -- the past of a job ------------------------------------------------------------ */

static int on_history(struct ctl_client *c, const struct ctl_options *o,
                      const char *word, struct err *e)
{
    struct top_question *question = o->answer;
    struct job_view job = *question->job;
    int rc;

    job.history = NULL;
    rc = ctl_views_ask_history(c, &job, e);
    question->history = job.history;
    return rc;
}

static cJSON *ask_history(void *arg, const struct job_view *job)
{
    static const struct ctl_command command = { .name = "top",
                                                .access = ACCESS_VIEW,
                                                .run = on_history };
    struct top_question question = { .job = job };
    struct err e;

    (void)!run_question(arg, &command, &question, &e);
    return question.history;
}

/* -- what ranks do ---------------------------------------------------------------- */

static void on_rank_stacks(void *arg, const struct msg *m)
{
    if (m->type == MSG_RANK_STACKS)
        stack_groups_add(arg, &m->stacks);
}

static int on_stacks_asked(struct ctl_client *c, const struct ctl_options *o,
                           const char *word, struct err *e)
{
    const struct top_question *question = o->answer;
    struct msg m = { .type = MSG_SHOW_STACKS };

    snprintf(m.show_stacks.run_id, sizeof(m.show_stacks.run_id), "%s",
             question->job->status.run_id);
    snprintf(m.show_stacks.ranks, sizeof(m.show_stacks.ranks), "%s", question->ranks);
    return ctl_client_ask(c, &m, on_rank_stacks, question->stacks, NULL, e);
}

static int ask_stacks(void *arg, const struct job_view *job, const char *ranks,
                      struct stack_groups *stacks, struct err *e)
{
    static const struct ctl_command command = { .name = "top",
                                                .access = ACCESS_OPERATE,
                                                .run = on_stacks_asked };
    struct top_question question = { .job = job, .ranks = ranks, .stacks = stacks };
    int rc = run_question(arg, &command, &question, e);

    stack_groups_sort(stacks);
    return rc;
}

/* -- their output ----------------------------------------------------------------- */

static const char *why_no_text(enum logs_kind kind)
{
    switch (kind) {
    case LOGS_PASSED:
        return "its output does not go through crun";
    case LOGS_NOWHERE:
        return "its output is thrown away";
    default:
        return "its output cannot be shown";
    }
}

/* The text as a terminal would show it; tabs have no width here. */
static char *drawn_text(const char *bytes, size_t size)
{
    char *text = xmalloc(size + 1);

    memcpy(text, bytes, size);
    size = text_drawn(text, size);
    text[size] = '\0';
    for (size_t i = 0; i < size; i++)
        if (text[i] == '\t')
            text[i] = ' ';
    return text;
}

static void on_rank_logs(void *arg, const struct msg *m)
{
    struct top_question *question = arg;
    struct top_node *node = question->node;
    struct top_output *o;
    char bytes[LOGS_PIECE_MAX];
    ssize_t n;

    if (m->type != MSG_RANK_LOGS || m->logs.kind == LOGS_MERGED)
        return;
    node->output = xrealloc(node->output, (node->outputs + 1) * sizeof(*node->output));
    o = &node->output[node->outputs++];
    *o = (struct top_output){ .rank = m->logs.rank,
                              .is_error = m->logs.stream == OUTPUT_STDERR };
    n = base64_decode(m->logs.text, bytes, sizeof(bytes));
    if (m->logs.kind != LOGS_TEXT || n < 0) {
        snprintf(o->why, sizeof(o->why), "%s", why_no_text(m->logs.kind));
        return;
    }
    o->text = drawn_text(bytes, (size_t)n);
    question->cut += m->logs.next < m->logs.size;
}

static int on_output_asked(struct ctl_client *c, const struct ctl_options *o,
                           const char *word, struct err *e)
{
    struct top_question *question = o->answer;
    struct msg m = { .type = MSG_SHOW_LOGS,
                     .ask_logs = { .stream = OUTPUT_BOTH, .tail = question->tail } };

    snprintf(m.ask_logs.run_id, sizeof(m.ask_logs.run_id), "%s",
             question->job->status.run_id);
    snprintf(m.ask_logs.ranks, sizeof(m.ask_logs.ranks), "%s", question->ranks);
    return ctl_client_ask(c, &m, on_rank_logs, question, NULL, e);
}

static int compare_outputs(const void *a, const void *b)
{
    const struct top_output *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->is_error - y->is_error;
}

/* An answer has the beginning of the lines: if it has not all of them, this asks for
 * fewer. */
static int ask_output(void *arg, const struct job_view *job, const char *ranks,
                      struct top_node *node, struct err *e)
{
    static const struct ctl_command command = { .name = "top",
                                                .access = ACCESS_OPERATE,
                                                .run = on_output_asked };
    struct top_question question = {
        .job = job, .ranks = ranks, .node = node, .tail = TAIL_MOST
    };
    int rc;

    do {
        top_node_forget_output(node);
        question.cut = 0;
        rc = run_question(arg, &command, &question, e);
        question.tail /= 4;
    } while (rc == 0 && question.cut && question.tail);
    if (node->outputs)
        qsort(node->output, node->outputs, sizeof(*node->output), compare_outputs);
    return rc;
}

/* The screen is not to be written on. */
static void drop_line(void *arg, enum log_level level, const char *line)
{
}

void ctl_top_show(struct screen *s, const struct ctl_options *o, ctl_run_fn *run)
{
    static struct top_questions q; /* the thread that asks ends with the process */
    const struct top_source source = { .arg = &q,
                                       .jobs = ask_jobs,
                                       .history = ask_history,
                                       .stacks = ask_stacks,
                                       .output = ask_output };

    q = (struct top_questions){ .o = o, .run = run };
    log_set_sink(drop_line, NULL);
    top_show(s, &source, o->watch_ms);
}
