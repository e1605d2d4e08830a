/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>

#include "worker-lib/core/profiler_ranges.h"
#include "worker-lib/core/status.h"
#include "worker-lib/training/ddp.h"
#include "worker-lib/training/ddp_slices.h"
#include "worker-lib/world/world.h"

/* One step of the reducer: begin, ready from any thread, finish. */

void crun_ddp_zero(crun_ddp *ddp)
{
    if (!ddp->sealed)
        return;
    ddp_note(ddp, ddp->ops->zero(ddp_queue(ddp), ddp->arena.gradients,
                                 ddp_gradients_kept(ddp)));
    ddp->gradients_since = atomic_load(&ddp->step.number) +
                           !atomic_load(&ddp->step.open);
}

crun_status crun_ddp_begin(crun_ddp *ddp, bool sync)
{
    crun_status s = world_refuse_in_group(ddp->world, "crun_ddp_begin");

    if (s != CRUN_OK)
        return s;
    if (!ddp->sealed)
        return status_fail(CRUN_BAD_ARGUMENT, "begin of a reducer that is not sealed");
    if (atomic_load(&ddp->step.open))
        return status_fail(CRUN_BAD_ARGUMENT,
                           "begin of a step before the last one was finished");
    if (!sync && ddp->options.shard == 2)
        return status_fail(CRUN_BAD_ARGUMENT, "shard 2 keeps no gradients that the "
                                              "ranks have not exchanged: sync false");
    for (unsigned i = 0; i < ddp->buckets; i++)
        atomic_store_explicit(&ddp->bucket[i].pending, ddp->bucket[i].parameters,
                              memory_order_relaxed);
    atomic_store(&ddp->step.places, 0);
    pthread_mutex_lock(&ddp->lock);
    ddp->step.launched = 0;
    ddp->step.status = CRUN_OK;
    pthread_mutex_unlock(&ddp->lock);
    ddp->times.overlap_before_us = world_overlap_us(ddp->world);
    atomic_fetch_add(&ddp->step.number, 1);
    if (sync)
        ddp->step.summed = ddp->sums && !ddp->options.hook.begin;
    atomic_store(&ddp->step.sync, sync);
    range_end(ddp->step.range);
    ddp->step.range = range_begin("step %" PRIu64, atomic_load(&ddp->step.number));
    atomic_store(&ddp->step.open, true);
    return CRUN_OK;
}

/* crun_ddp_finish reports it: the thread that launched may ignore its result. */
void ddp_note(crun_ddp *ddp, crun_status s)
{
    if (s == CRUN_OK || ddp->step.status != CRUN_OK)
        return;
    ddp->step.status = s;
    snprintf(ddp->step.text, sizeof(ddp->step.text), "%s", crun_error_text());
}

/* -- launching, with the lock held ------------------------------------------------- */

static struct op bucket_op(const crun_ddp *ddp, const struct ddp_bucket *b)
{
    char *whole = ddp->windowed ? b->window->memory : ddp_gradient_at(ddp, b->at);
    struct op op = { .kind = OP_ALL_REDUCE,
                     .type = ddp->options.grad_type,
                     .op = ddp->step.summed ? CRUN_SUM : CRUN_MEAN,
                     .in = whole,
                     .out = whole,
                     .count = b->count,
                     .followed = !ddp->ops->queued }; /* by reduce_step_words() */

    if (ddp->divided) {
        op.kind = OP_REDUCE_SCATTER;
        op.out = ddp_slice_gradients(ddp, b);
        op.count = ddp_slice_count(ddp, b);
    }
    return op;
}

static struct op unused_op(const crun_ddp *ddp)
{
    return (struct op){ .kind = OP_ALL_REDUCE,
                        .type = CRUN_I32,
                        .op = CRUN_SUM,
                        .in = ddp->unused.sum,
                        .out = ddp->unused.sum,
                        .count = 1 };
}

static struct ddp_bucket *bucket_in_order(const crun_ddp *ddp, unsigned place)
{
    return &ddp->bucket[ddp->launch_order[place].bucket];
}

/* The place in launch_order where the group that begins at `first` ends. */
static unsigned find_group_end(const crun_ddp *ddp, unsigned first)
{
    unsigned end = first + 1;

    while (end < ddp->buckets &&
           ddp->launch_order[end].group == ddp->launch_order[first].group)
        end++;
    return end;
}

static bool group_is_complete(const crun_ddp *ddp, unsigned first, unsigned end)
{
    for (unsigned i = first; i < end; i++)
        if (atomic_load(&bucket_in_order(ddp, i)->pending) != 0)
            return false;
    return true;
}

static crun_status launch_as_one(crun_ddp *ddp, unsigned first, unsigned end,
                                 enum op_start start, bool with_unused)
{
    struct op op = { .kind = OP_GROUP, .start = start, .group = op_group_create() };
    struct op word = unused_op(ddp);
    bool ok = op.group != NULL;

    for (unsigned i = first; ok && i < end; i++) {
        struct op bucket = bucket_op(ddp, bucket_in_order(ddp, i));

        ok = op_group_add(op.group, &bucket);
    }
    if (ok && with_unused)
        ok = op_group_add(op.group, &word);
    if (ok)
        return world_call(ddp->world, op, &bucket_in_order(ddp, first)->work);
    op_group_drop(op.group);
    return status_fail(CRUN_NO_MEMORY, "no memory for a group of %u buckets",
                       end - first);
}

static crun_ddp_bucket bucket_for_hook(const crun_ddp *ddp, const struct ddp_bucket *b)
{
    return (crun_ddp_bucket){ .number = (unsigned)(b - ddp->bucket),
                              .gradients = ddp_gradient_at(ddp, b->at),
                              .count = b->count,
                              .type = ddp->options.grad_type };
}

static void launch_by_hook(crun_ddp *ddp, unsigned first, unsigned end,
                           bool with_unused)
{
    const crun_ddp_hook *hook = &ddp->options.hook;

    for (unsigned i = first; i < end && ddp->step.status == CRUN_OK; i++) {
        struct ddp_bucket *b = bucket_in_order(ddp, i);
        crun_ddp_bucket bucket = bucket_for_hook(ddp, b);

        ddp_note(ddp, hook->begin(hook->arg, ddp->world, &bucket, &b->work));
    }
    if (with_unused && ddp->step.status == CRUN_OK)
        ddp_note(ddp, world_call(ddp->world, unused_op(ddp), NULL));
}

static crun_status end_by_hook(crun_ddp *ddp)
{
    const crun_ddp_hook *hook = &ddp->options.hook;
    crun_status s = CRUN_OK;

    for (unsigned i = 0; hook->end && i < ddp->buckets && s == CRUN_OK; i++) {
        crun_ddp_bucket bucket = bucket_for_hook(ddp, &ddp->bucket[i]);

        s = hook->end(hook->arg, ddp->world, &bucket);
    }
    ddp_note(ddp, s);
    return s;
}

static void launch_group(crun_ddp *ddp, unsigned first, unsigned end,
                         enum op_start start)
{
    bool with_unused = ddp->ops->queued && end == ddp->buckets;
    struct ddp_bucket *b = bucket_in_order(ddp, first);
    struct op op;

    if (ddp->size == 1 || ddp->step.status != CRUN_OK)
        return;
    ddp_note(ddp, ddp_window_take(ddp, b)); /* of parameters without gradients */
    if (ddp->step.status != CRUN_OK)
        return;
    op = bucket_op(ddp, b);
    for (unsigned i = first; i < end; i++)
        bucket_in_order(ddp, i)->range = range_begin("bucket %u",
                                                     ddp->launch_order[i].bucket);
    if (ddp->options.hook.begin) {
        launch_by_hook(ddp, first, end, with_unused);
        return;
    }
    op.start = start;
    ddp_note(ddp, end - first > 1 || with_unused
                      ? launch_as_one(ddp, first, end, start, with_unused)
                      : world_call(ddp->world, op, &b->work));
}

/* Launches the groups that are complete and next; `all`: all that are left. */
static crun_status launch_next_groups(crun_ddp *ddp, bool all)
{
    enum op_start start = all ? OP_WHEN_WAITED : OP_IF_OVERLAP_PAYS;
    crun_status s;

    pthread_mutex_lock(&ddp->lock);
    while (ddp->step.launched < ddp->buckets) {
        unsigned first = ddp->step.launched, end = find_group_end(ddp, first);
        bool is_of_finish = ddp->ops->queued && end == ddp->buckets;

        if (!all && (is_of_finish || !group_is_complete(ddp, first, end)))
            break;
        launch_group(ddp, first, end, start);
        ddp->step.launched = end;
    }
    s = ddp->step.status;
    pthread_mutex_unlock(&ddp->lock);
    return s;
}

crun_status crun_ddp_ready(crun_ddp *ddp, int parameter)
{
    struct ddp_parameter *p;
    uint64_t step = atomic_load(&ddp->step.number);
    bool complete = false;

    if (!atomic_load(&ddp->step.open))
        return status_fail(CRUN_BAD_ARGUMENT, "parameter %d is ready outside of a step",
                           parameter);
    if (parameter < 0 || parameter >= (int)ddp->parameters)
        return status_fail(CRUN_BAD_ARGUMENT,
                           "there is no parameter %d: %u were registered", parameter,
                           ddp->parameters);
    p = &ddp->parameter[parameter];
    if (atomic_exchange(&p->ready, step) == step)
        return status_fail(CRUN_BAD_ARGUMENT,
                           "parameter %d \"%s\" is ready twice in one step", parameter,
                           p->name);
    if (!atomic_load(&ddp->step.sync))
        return CRUN_OK;
    if (ddp->steps_synced == 0)
        atomic_store(&p->place, atomic_fetch_add(&ddp->step.places, 1));
    for (unsigned b = p->first_bucket; b <= p->last_bucket; b++)
        complete |= atomic_fetch_sub(&ddp->bucket[b].pending, 1) == 1;
    return complete ? launch_next_groups(ddp, false) : CRUN_OK;
}

/* -- the end of a step ------------------------------------------------------------- */

crun_status ddp_wait_all(crun_ddp *ddp, crun_work *last)
{
    for (unsigned i = 0; i < ddp->buckets; i++) {
        struct ddp_bucket *b = &ddp->bucket[i];

        if (b->work)
            ddp_note(ddp, crun_wait(b->work));
        b->work = NULL;
        ddp_window_leave(b);
        range_end(b->range);
        b->range = 0;
    }
    if (last)
        ddp_note(ddp, crun_wait(last));
    return ddp->step.status == CRUN_OK
               ? CRUN_OK
               : status_fail(ddp->step.status, "%s", ddp->step.text);
}

/*
 * Three numbers that each step reduces to their minimum over all ranks. The last rank
 * to arrive waits least, for communication alone; the additional waiting time of other
 * ranks is skew.
 */
enum { WORD_UNUSED /* negative */, WORD_WAITED, WORD_OVERLAP, WORDS };

static crun_status reduce_step_words(crun_ddp *ddp, int32_t *word, crun_work **work)
{
    const struct op op = { .kind = OP_ALL_REDUCE,
                           .type = CRUN_I32,
                           .op = CRUN_MIN,
                           .in = word,
                           .out = word,
                           .count = WORDS,
                           .start = OP_WHEN_WAITED };

    return world_call(ddp->world, op, work);
}

static void ddp_add_times(crun_ddp *ddp, int32_t waited_us, int32_t overlap_us)
{
    ddp->times.exposed_s += 1e-6 * waited_us;
    ddp->times.skew_s += 1e-6 * (ddp->times.last.waited_us - waited_us);
    ddp->times.communication_s += 1e-6 * overlap_us;
}

static int32_t microseconds_to_word(double us)
{
    return us < INT32_MAX ? (int32_t)us : INT32_MAX;
}

void ddp_has_waited(crun_ddp *ddp, double since)
{
    struct ddp_step_times *last = &ddp->times.last;
    uint64_t overlap_us = world_overlap_us(ddp->world) - ddp->times.overlap_before_us;

    if (ddp->size == 1)
        return;
    last->waited_us = microseconds_to_word(last->waited_us +
                                           1e6 * (ddp_seconds() - since));
    last->overlap_us = microseconds_to_word((double)overlap_us);
    /* the wait has the way to and from the thread that communicates, too; on a GPU it
     * has the computation */
    if (!ddp->ops->queued && last->overlap_us < last->waited_us)
        last->overlap_us = last->waited_us;
}

static crun_status ddp_communicate(crun_ddp *ddp, int32_t *unused)
{
    int32_t word[WORDS] = { -*unused, ddp->times.last.waited_us,
                            ddp->times.last.overlap_us };
    double began = ddp_seconds();
    crun_work *work = NULL;
    crun_status s;

    if (ddp->ops->queued)
        ddp_note(ddp, ddp_put_unused(ddp, *unused));
    s = launch_next_groups(ddp, true);
    if (ddp->size > 1 && !ddp->ops->queued && s == CRUN_OK)
        s = reduce_step_words(ddp, word, &work);
    ddp_note(ddp, s);
    s = ddp_wait_all(ddp, s == CRUN_OK ? work : NULL);
    if (s == CRUN_OK && ddp->options.hook.begin && ddp->size > 1)
        s = end_by_hook(ddp);
    if (!ddp->ops->queued)
        *unused = -word[WORD_UNUSED];
    else if (s == CRUN_OK)
        s = ddp_read_unused(ddp, unused);
    if (s == CRUN_OK)
        ddp_add_times(ddp, word[WORD_WAITED], word[WORD_OVERLAP]);
    ddp->times.last.waited_us = 0;
    ddp_has_waited(ddp, began);
    return s;
}

crun_status crun_ddp_finish(crun_ddp *ddp)
{
    crun_status s;
    int32_t unused, own;

    if (!atomic_exchange(&ddp->step.open, false))
        return status_fail(CRUN_BAD_ARGUMENT, "finish of a step that was not begun");
    if (!atomic_load(&ddp->step.sync))
        return CRUN_OK;
    unused = own = ddp_zero_unused(ddp);
    s = ddp_communicate(ddp, &unused);
    if (ddp_names_own_unused(ddp))
        unused = own;
    if (ddp->unused.names)
        ddp->unused.names[0] = '\0';
    if (s == CRUN_OK && ddp->steps_synced == 0)
        s = ddp_reorder(ddp);
    if (s == CRUN_OK && unused > 0)
        s = ddp_name_unused(ddp);
    ddp->steps_synced++;
    ddp->gradients_since = atomic_load(&ddp->step.number) + 1;
    return s;
}
