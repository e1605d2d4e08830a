/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/records/journal.h"
#include "rendezvous/job/registry/job_records.h"
#include "rendezvous/job/registry/limits.h"
#include "rendezvous/job/registry/node_asks.h"
#include "rendezvous/job/registry/registry_internal.h"
#include "rendezvous/job/stacks/stack_groups.h"

/*
 * Questions to all nodes of a job: what do your ranks do? crunctl gets the answers as
 * they come. The rendezvous itself asks when a rank hangs, and when all ranks are
 * silent, and merges the answers. A node that has not answered in time is named.
 */
struct stack_ask {
    struct node_ask ask;
    enum stack_purpose purpose;
    struct stack_groups groups; /* unless crunctl merges */
};

/* -- answers -------------------------------------------------------------------- */

static void stack_ask_take(struct stack_ask *a, const struct msg_stacks *stacks,
                           const char *host)
{
    struct msg m = { .type = MSG_RANK_STACKS, .sequence = a->ask.sequence };

    m.stacks = *stacks;
    m.stacks.ask = 0;
    m.stacks.last = false;
    if (a->purpose == STACKS_FOR_CAUSE && stacks->kind == STACKS_ENDED)
        m.stacks.waits = true; /* it has waited until it gave up */
    snprintf(m.stacks.host, sizeof(m.stacks.host), "%s", host);
    if (a->purpose != STACKS_FOR_CRUNCTL)
        stack_groups_add(&a->groups, &m.stacks);
    else if (*m.stacks.ranks || m.stacks.kind == STACKS_MISSING)
        registry_send(a->ask.peer, &m);
}

static void miss_stacks(struct node_ask *a, const char *host, const char *why)
{
    struct msg_stacks missing = { .kind = STACKS_MISSING };

    snprintf(missing.brief, sizeof(missing.brief), "%s", why);
    stack_ask_take((struct stack_ask *)a, &missing, host);
}

/* -- a hang --------------------------------------------------------------------- */

static void send_notice(const struct job *job, uint32_t node, const char *text)
{
    struct msg m = { .type = MSG_NOTICE, .notice = { .kind = "stacks" } };

    if (!job->node[node]->peer)
        return;
    snprintf(m.notice.text, sizeof(m.notice.text), "%s", text);
    registry_send(job->node[node]->peer, &m);
}

/* All of it to the node of rank 0, where users look first, and the culprit to the
 * others. */
static void notify_nodes(const struct job *job, const char *all, const char *briefly)
{
    MEMBERSHIP_EACH(i, &job->membership) {
        const char *text = i == job->membership.leader ? all : briefly;

        if (*text)
            send_notice(job, i, text);
    }
}

static uint32_t node_of_rank(const struct job *job, uint32_t rank)
{
    MEMBERSHIP_EACH(i, &job->membership) {
        const struct membership_node *n = &job->membership.node[i];

        if (n->group_rank != MEMBERSHIP_NONE && rank >= n->first_rank &&
            rank - n->first_rank < n->workers)
            return i;
    }
    return MEMBERSHIP_NONE;
}

/* The rank that was reported may be one of those that wait for the culprit. */
static void blame_rank(struct registry *g, struct job *job,
                       const struct stack_group *culprit)
{
    struct membership_event ev = { .type = MEMBERSHIP_EV_BLAMED,
                                   .epoch = job->membership.epoch };
    struct failure *f = &job->failure;
    uint32_t rank = culprit->ranks.range[0].first, node = node_of_rank(job, rank);

    if (node == MEMBERSHIP_NONE)
        return;
    f->rank = rank;
    f->local_rank = rank - job->membership.node[node].first_rank;
    f->pid = culprit->pid;
    snprintf(f->log, sizeof(f->log), "%s", culprit->log);
    memcpy(f->host, job->node[node]->host, sizeof(f->host));
    snprintf(f->what, sizeof(f->what), "all other ranks wait for it; it is in %s",
             culprit->brief);
    ev.node = node;
    ev.incarnation = job->membership.node[node].incarnation;
    if (job->membership.state == JOB_STOPPING) /* else in the step that ends the stop */
        registry_step(g, job, &ev, NULL, NULL, NULL);
}

static void explain_failure(struct registry *g, struct job *job,
                            const struct stack_groups *s)
{
    struct failure *f = &job->failure;
    const struct stack_group *culprit;
    const char *phase;
    size_t used = strlen(f->what);
    unsigned i;

    if (stack_groups_find_culprit(s, &i) == STACK_CULPRIT_NONE)
        return;
    culprit = &s->group[i];
    phase = strstr(culprit->brief, "; it was "); /* known already */
    if (!rank_ranges_have(&culprit->ranks, f->rank))
        blame_rank(g, job, culprit);
    else if (culprit->kind == STACKS_PYTHON)
        snprintf(f->what + used, sizeof(f->what) - used, ", in %s", culprit->brief);
    else if (culprit->kind == STACKS_SILENT)
        snprintf(
            f->what + used, sizeof(f->what) - used, "; it does not answer: %.*s",
            (int)(phase ? phase - culprit->brief : (ptrdiff_t)strlen(culprit->brief)),
            culprit->brief);
}

/* Without any stacks, what the nodes have reported of each rank says it all. */
static bool has_news(const struct stack_groups *s)
{
    for (unsigned i = 0; i < s->count; i++)
        if (s->group[i].kind == STACKS_PYTHON || s->group[i].kind == STACKS_SILENT)
            return true;
    return false;
}

/* The report of the failure has a line for each group, and the culprit's stacks. */
static void keep_stacks(struct job *job, const struct stack_groups *s)
{
    char line[STACKS_BRIEF_MAX_BYTES + 256];
    enum stack_culprit culprit;
    unsigned i;

    for (i = 0; i < s->count; i++)
        if (s->group[i].kind != STACKS_PAGE)
            job_add_hang_line(job, "%s",
                              stack_group_describe(&s->group[i], line, sizeof(line)));
    culprit = stack_groups_find_culprit(s, &i);
    if (culprit == STACK_CULPRIT_NONE || !*s->group[i].threads)
        return;
    job_add_hang_line(job, "rank %" PRIu32 ":", s->group[i].ranks.range[0].first);
    job_add_hang_line(job, "%s", s->group[i].threads);
}

static void conclude_hang(struct registry *g, struct stack_ask *a)
{
    struct job *job = a->ask.job;
    char all[NOTICE_MAX_BYTES + 1], culprit[256];

    if (!has_news(&a->groups) || job->failure.kind != FAILURE_HANG)
        return;
    stack_groups_describe(&a->groups, all, sizeof(all));
    stack_groups_describe_culprit(&a->groups, culprit, sizeof(culprit));
    registry_report(g, job, "stacks", "", "%s", all);
    if (*culprit)
        registry_report(g, job, "stacks", "", "%s", culprit);
    notify_nodes(job, all, "");
    notify_nodes(job, culprit, culprit);
    explain_failure(g, job, &a->groups);
    keep_stacks(job, &a->groups);
    job_set_failure_text(job);
    job_records_put_failure(g->journal, job);
}

/* Where all ranks wait for one, or did until they ended, that one hangs, unless its
 * interpreter ends: it was a consequence, too. */
static void conclude_cause(struct registry *g, struct stack_ask *a)
{
    struct failure *f = &a->ask.job->failure;
    unsigned i;

    if (stack_groups_find_culprit(&a->groups, &i) != STACK_CULPRIT_AWAITED ||
        a->groups.group[i].kind == STACKS_PAGE || f->origin != FAILURE_ORIGIN_PEER ||
        strncmp(a->groups.group[i].brief, STACKS_NO_FUNCTION,
                strlen(STACKS_NO_FUNCTION)) == 0)
        return;
    job_add_afterwards(a->ask.job, f);
    f->kind = FAILURE_HANG;
    f->origin = FAILURE_ORIGIN_OWN;
    f->code = 0;
    f->said[0] = f->error[0] = '\0';
    conclude_hang(g, a);
}

/* -- silence -------------------------------------------------------------------- */

static void conclude_silence(struct registry *g, struct stack_ask *a)
{
    char all[NOTICE_MAX_BYTES - 100], culprit[100], age[32];

    stack_groups_describe(&a->groups, all, sizeof(all));
    stack_groups_describe_culprit(&a->groups, culprit, sizeof(culprit));
    clock_format_duration(a->ask.job->silent_ms, age, sizeof(age));
    registry_notice(g, a->ask.job, "silence", "",
                    "nothing moves on any rank for %s: %s%s%s", age, all,
                    *culprit ? "; " : "", culprit);
}

static bool node_runs_workers(const struct membership_node *n)
{
    return n->state == MEMBERSHIP_NODE_ACTIVE && n->started;
}

void registry_note_silence(struct registry *g, struct job *job)
{
    uint32_t least = UINT32_MAX;

    if (job->membership.state != JOB_RUNNING ||
        job->silence_epoch == job->membership.epoch)
        return;
    MEMBERSHIP_EACH(i, &job->membership) {
        uint32_t silent_ms;

        if (!node_runs_workers(&job->membership.node[i]))
            continue;
        silent_ms = job->node[i]->progress.silent_ms;
        if (silent_ms == 0) /* nearly always the first node already */
            return;
        if (silent_ms < least)
            least = silent_ms;
    }
    if (least == UINT32_MAX)
        return;
    job->silence_epoch = job->membership.epoch;
    job->silent_ms = least;
    registry_ask_stacks(g, job, STACKS_FOR_SILENCE);
}

/* -- asking --------------------------------------------------------------------- */

static void conclude_stacks(struct registry *g, struct node_ask *ask)
{
    struct msg end = { .type = MSG_END_OF_LIST, .sequence = ask->sequence };
    struct stack_ask *a = (struct stack_ask *)ask;

    stack_groups_sort(&a->groups);
    if (a->purpose == STACKS_FOR_CRUNCTL)
        registry_send(ask->peer, &end);
    else if (a->purpose == STACKS_FOR_HANG)
        conclude_hang(g, a);
    else if (a->purpose == STACKS_FOR_CAUSE)
        conclude_cause(g, a);
    else
        conclude_silence(g, a);
}

static void fini_stack_ask(struct node_ask *a)
{
    stack_groups_fini(&((struct stack_ask *)a)->groups);
}

static const struct node_ask_type stack_ask_type = { .is_of_epoch = true,
                                                     .miss = miss_stacks,
                                                     .conclude = conclude_stacks,
                                                     .fini = fini_stack_ask };

static struct stack_ask *add_stack_ask(struct registry *g, struct job *job,
                                       enum stack_purpose purpose)
{
    struct stack_ask *a = xcalloc(1, sizeof(*a));

    a->ask.type = &stack_ask_type;
    a->purpose = purpose;
    a->groups.briefly = true;
    node_ask_add(g, &a->ask, job, g->now_ms + STACKS_DEADLINE_MS);
    return a;
}

static void ask_node_for_stacks(struct node_ask *a, uint32_t node, const char *ranks)
{
    struct registry_peer *p = a->job->node[node]->peer;
    struct msg m = { .type = MSG_ASK_STACKS };

    if (!p) {
        miss_stacks(a, a->job->node[node]->host, "not connected");
        return;
    }
    m.ask_stacks.ask = a->number;
    snprintf(m.ask_stacks.ranks, sizeof(m.ask_stacks.ranks), "%s", ranks);
    registry_send(p, &m);
    node_ask_owe(a, node);
}

/* The question is over if no node can answer it. */
static void ask_nodes_for_stacks(struct registry *g, struct node_ask *a,
                                 const char *text)
{
    const struct membership *membership = &a->job->membership;
    struct rank_ranges ranks = { .count = 0 };

    if (*text)
        (void)rank_ranges_parse(&ranks, text);
    MEMBERSHIP_EACH(i, membership)
        if (node_runs_workers(&membership->node[i]) &&
            node_has_any_rank(&membership->node[i], &ranks))
            ask_node_for_stacks(a, i, text);
    rank_ranges_fini(&ranks);
    if (a->owing == 0)
        node_ask_finish(g, a);
}

void registry_ask_stacks(struct registry *g, struct job *job,
                         enum stack_purpose purpose)
{
    ask_nodes_for_stacks(g, &add_stack_ask(g, job, purpose)->ask, "");
}

void registry_show_stacks(struct registry *g, struct registry_peer *p,
                          const struct msg *m, struct job *job)
{
    struct rank_ranges ranks = { .count = 0 };
    bool valid = !*m->show_stacks.ranks ||
                 rank_ranges_parse(&ranks, m->show_stacks.ranks);
    unsigned open = node_asks_count(g, &stack_ask_type);
    struct node_ask *a;

    rank_ranges_fini(&ranks);
    if (!valid || job->membership.state != JOB_RUNNING || open >= STACKS_ASKS_MAX) {
        registry_refuse(p, m, valid ? REFUSED_BUSY : REFUSED_UNKNOWN, false,
                        !valid ? "\"%s\" is not a list of ranks"
                        : open >= STACKS_ASKS_MAX
                            ? "too many questions for stacks are open"
                            : "no workers of job \"%s\" run now",
                        valid ? job->name : m->show_stacks.ranks);
        return;
    }
    a = &add_stack_ask(g, job, STACKS_FOR_CRUNCTL)->ask;
    a->peer = p;
    a->sequence = m->sequence;
    ask_nodes_for_stacks(g, a, m->show_stacks.ranks);
}

void registry_take_stacks(struct registry_peer *p, const struct msg *m,
                          struct membership_event *ev)
{
    const struct msg_stacks *stacks = &m->stacks;
    struct node_ask *a = node_ask_find(p, &stack_ask_type, stacks->ask);

    if (!a)
        return;
    stack_ask_take((struct stack_ask *)a, stacks, p->job->node[p->node]->host);
    if (stacks->last)
        node_ask_settle(p->registry, a, p->node);
}
