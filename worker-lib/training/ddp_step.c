/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker-lib/training/ddp.h"
#include "worker-lib/core/status.h"
#include "worker-lib/world/world.h"

/* One step of the reducer: begin, ready from any thread, finish. */

static char *gradient_at(const crun_ddp *ddp, size_t at)
{
    return ddp->gradients + at * ddp->element;
}

void crun_ddp_zero(crun_ddp *ddp)
{
    if (!ddp->sealed)
        return;
    ddp_note(ddp, ddp->ops->zero(ddp_queue(ddp), ddp->gradients,
                                 ddp->length * ddp->element));
    ddp->since = atomic_load(&ddp->step) + !atomic_load(&ddp->open);
}

crun_status crun_ddp_begin(crun_ddp *ddp, bool sync)
{
    if (!ddp->sealed)
        return fail(CRUN_BAD_ARGUMENT, "begin of a reducer that is not sealed");
    if (atomic_load(&ddp->open))
        return fail(CRUN_BAD_ARGUMENT, "begin of a step while another is under way");
    for (unsigned i = 0; i < ddp->buckets; i++)
        atomic_store_explicit(&ddp->bucket[i].pending, ddp->bucket[i].parameters,
                              memory_order_relaxed);
    atomic_store(&ddp->places, 0);
    pthread_mutex_lock(&ddp->lock);
    ddp->launched = 0;
    ddp->status = CRUN_OK;
    pthread_mutex_unlock(&ddp->lock);
    ddp->beside_us = world_beside_us(ddp->world);
    atomic_fetch_add(&ddp->step, 1);
    atomic_store(&ddp->sync, sync);
    atomic_store(&ddp->open, true);
    return CRUN_OK;
}

/* In the thread that launched, nobody may see the words: finish says them again. */
void ddp_note(crun_ddp *ddp, crun_status s)
{
    if (s == CRUN_OK || ddp->status != CRUN_OK)
        return;
    ddp->status = s;
    snprintf(ddp->text, sizeof(ddp->text), "%s", crun_error_text());
}

/* -- launching, with the lock held ----------------------------------------------- */

static void launch(crun_ddp *ddp, struct ddp_bucket *b, enum op_start start)
{
    char *whole = gradient_at(ddp, b->at),
         *slice = gradient_at(ddp, ddp_slice_at(ddp, b));
    struct op op = { .kind = OP_ALL_REDUCE,
                     .type = ddp->options.grad_type,
                     .op = CRUN_MEAN,
                     .in = whole,
                     .out = whole,
                     .count = b->count,
                     .start = start,
                     .followed = !ddp->ops->queued }; /* by take_least() */

    if (ddp->size == 1 || ddp->status != CRUN_OK)
        return;
    if (ddp->divided) {
        op.kind = OP_REDUCE_SCATTER;
        op.out = slice;
        op.count = ddp_slice_count(ddp, b);
    }
    ddp_note(ddp, world_call(ddp->world, op, &b->work));
}

/* All that are complete and next, or, with the wait for them, the rest. */
static crun_status launch_next(crun_ddp *ddp, bool all)
{
    enum op_start start = all ? OP_WHEN_WAITED : OP_IF_IT_GAINS;
    crun_status s;

    pthread_mutex_lock(&ddp->lock);
    while (ddp->launched < ddp->buckets) {
        struct ddp_bucket *b = &ddp->bucket[ddp->order[ddp->launched]];

        if (!all && atomic_load(&b->pending) != 0)
            break;
        launch(ddp, b, start);
        ddp->launched++;
    }
    s = ddp->status;
    pthread_mutex_unlock(&ddp->lock);
    return s;
}

crun_status crun_ddp_ready(crun_ddp *ddp, int parameter)
{
    struct ddp_parameter *p;
    uint64_t step = atomic_load(&ddp->step);
    bool complete = false;

    if (!atomic_load(&ddp->open))
        return fail(CRUN_BAD_ARGUMENT, "parameter %d is ready outside of a step",
                    parameter);
    if (parameter < 0 || parameter >= (int)ddp->parameters)
        return fail(CRUN_BAD_ARGUMENT, "there is no parameter %d: %u were registered",
                    parameter, ddp->parameters);
    p = &ddp->parameter[parameter];
    if (atomic_exchange(&p->ready, step) == step)
        return fail(CRUN_BAD_ARGUMENT, "parameter %d \"%s\" is ready twice in one step",
                    parameter, p->name);
    if (!atomic_load(&ddp->sync))
        return CRUN_OK;
    if (ddp->synced == 0)
        atomic_store(&p->place, atomic_fetch_add(&ddp->places, 1));
    for (unsigned b = p->first_bucket; b <= p->last_bucket; b++)
        complete |= atomic_fetch_sub(&ddp->bucket[b].pending, 1) == 1;
    return complete ? launch_next(ddp, false) : CRUN_OK;
}

/* -- the end of a step ----------------------------------------------------------- */

static bool is_unused(const crun_ddp *ddp, const struct ddp_parameter *p)
{
    return atomic_load_explicit(&p->ready, memory_order_relaxed) < ddp->since;
}

/* What they hold is of some earlier step. */
static int32_t zero_unused(crun_ddp *ddp)
{
    int32_t n = 0;

    for (unsigned i = 0; i < ddp->parameters; i++) {
        const struct ddp_parameter *p = &ddp->parameter[i];

        if (!is_unused(ddp, p))
            continue;
        ddp_note(ddp, ddp->ops->zero(ddp_queue(ddp), gradient_at(ddp, p->at),
                                     p->count * ddp->element));
        n++;
    }
    return n;
}

crun_status ddp_wait_all(crun_ddp *ddp, crun_work *last)
{
    for (unsigned i = 0; i < ddp->buckets; i++) {
        struct ddp_bucket *b = &ddp->bucket[i];

        if (b->work)
            ddp_note(ddp, crun_wait(b->work));
        b->work = NULL;
    }
    if (last)
        ddp_note(ddp, crun_wait(last));
    return ddp->status == CRUN_OK ? CRUN_OK : fail(ddp->status, "%s", ddp->text);
}

/*
 * Where work is queued, nobody waits for the sum over all ranks: it goes to where the
 * gradients are, and every rank looks at it DDP_NOTES steps later. So no rank is ever
 * further ahead of its GPU.
 */
static crun_status sum_later(crun_ddp *ddp, int32_t *unused)
{
    struct device_note *note = ddp->unused_note[ddp->synced % DDP_NOTES];
    const int32_t *before = NULL;
    crun_status s;

    if (ddp->synced >= DDP_NOTES) {
        before = ddp->ops->read_note(note);
        if (!before)
            return fail(CRUN_SYSTEM, "%s", crun_error_text());
    }
    s = ddp->ops->put_word(ddp_queue(ddp), ddp->unused_sum, *unused);
    if (s == CRUN_OK && ddp->size > 1)
        s = crun_all_reduce(ddp->world, ddp->unused_sum, ddp->unused_sum, 1, CRUN_I32,
                            CRUN_SUM, NULL);
    *unused = before ? *before : 0;
    return s == CRUN_OK ? ddp->ops->write_note(ddp_queue(ddp), note, ddp->unused_sum,
                                               sizeof(*ddp->unused_sum))
                        : s;
}

/*
 * What the ranks tell each other with every step's gradients; of each the least is
 * kept. What even the last rank to come has waited was for the network: the others'
 * rest was for that rank.
 */
enum { WORD_UNUSED /* negative */, WORD_WAITED, WORD_BESIDE, WORDS };

static crun_status take_least(crun_ddp *ddp, int32_t *word, crun_work **work)
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

static void add_times(crun_ddp *ddp, int32_t waited_us, int32_t beside_us)
{
    ddp->exposed_s += 1e-6 * waited_us;
    ddp->skew_s += 1e-6 * (ddp->last.waited_us - waited_us);
    ddp->communication_s += 1e-6 * beside_us;
}

static int32_t to_word(double us)
{
    return us < INT32_MAX ? (int32_t)us : INT32_MAX;
}

void ddp_has_waited(crun_ddp *ddp, double since)
{
    uint64_t beside_us = world_beside_us(ddp->world) - ddp->beside_us;

    ddp->last.waited_us = to_word(ddp->last.waited_us + 1e6 * (ddp_seconds() - since));
    ddp->last.beside_us = to_word((double)beside_us);
}

static crun_status communicate(crun_ddp *ddp, int32_t *unused)
{
    int32_t word[WORDS] = { -*unused, ddp->last.waited_us, ddp->last.beside_us };
    double began = ddp_seconds();
    crun_work *work = NULL;
    crun_status s = launch_next(ddp, true);

    if (ddp->ops->queued && s == CRUN_OK)
        s = sum_later(ddp, unused);
    else if (ddp->size > 1 && s == CRUN_OK)
        s = take_least(ddp, word, &work);
    ddp_note(ddp, s);
    s = ddp_wait_all(ddp, s == CRUN_OK ? work : NULL);
    if (!ddp->ops->queued)
        *unused = -word[WORD_UNUSED];
    if (s == CRUN_OK)
        add_times(ddp, word[WORD_WAITED], word[WORD_BESIDE]);
    ddp->last.waited_us = 0;
    ddp_has_waited(ddp, began);
    return s;
}

/* Where the others' are known late, and nothing hangs on them. */
static bool names_its_own(const crun_ddp *ddp)
{
    return ddp->ops->queued && ddp->options.find_unused;
}

/* The lowest rank without a gradient for each parameter; INT32_MAX: all have one. */
static int32_t *find_unused(crun_ddp *ddp, crun_status *s)
{
    int32_t *rank = malloc(ddp->parameters * sizeof(*rank));

    if (!rank) {
        *s = fail(CRUN_NO_MEMORY, "no memory to name the unused parameters");
        return NULL;
    }
    for (unsigned i = 0; i < ddp->parameters; i++)
        rank[i] = is_unused(ddp, &ddp->parameter[i]) ? (int32_t)ddp->rank : INT32_MAX;
    *s = ddp->size == 1 || names_its_own(ddp)
             ? CRUN_OK
             : crun_all_reduce(ddp->world, rank, rank, ddp->parameters, CRUN_I32,
                               CRUN_MIN, NULL);
    return rank;
}

#define NAMES_BYTES 4096

static crun_status name_unused(crun_ddp *ddp)
{
    crun_status s;
    int32_t *rank = find_unused(ddp, &s);
    size_t used = 0;
    unsigned more = 0;
    int32_t first = -1;

    if (!ddp->unused)
        ddp->unused = malloc(NAMES_BYTES);
    if (s == CRUN_OK && !ddp->unused)
        s = fail(CRUN_NO_MEMORY, "no memory to name the unused parameters");
    if (s == CRUN_OK)
        ddp->unused[0] = '\0';
    for (unsigned i = 0; s == CRUN_OK && i < ddp->parameters; i++) {
        const char *name = ddp->parameter[i].name;

        if (rank[i] == INT32_MAX)
            continue;
        if (first < 0)
            first = rank[i];
        if (used + strlen(name) + 32 > NAMES_BYTES)
            more++;
        else
            used += (size_t)sprintf(ddp->unused + used, "%s%s", used ? ", " : "", name);
    }
    if (more)
        sprintf(ddp->unused + used, " and %u more", more);
    free(rank);
    if (s != CRUN_OK || ddp->options.find_unused)
        return s;
    if (first < 0)
        return fail(CRUN_BAD_ARGUMENT, "a parameter had no gradient two steps ago, on "
                                       "some rank, and has one now (find_unused takes "
                                       "it for zero)");
    return fail(CRUN_BAD_ARGUMENT,
                "no gradient in this step on rank %d for %.300s (if that is meant, "
                "find_unused takes it for zero)",
                first, ddp->unused);
}

crun_status crun_ddp_finish(crun_ddp *ddp)
{
    crun_status s;
    int32_t unused, own;

    if (!atomic_exchange(&ddp->open, false))
        return fail(CRUN_BAD_ARGUMENT, "finish of a step that was not begun");
    if (!atomic_load(&ddp->sync))
        return CRUN_OK;
    unused = own = zero_unused(ddp);
    s = communicate(ddp, &unused);
    if (names_its_own(ddp))
        unused = own;
    if (ddp->unused)
        ddp->unused[0] = '\0';
    if (s == CRUN_OK && ddp->synced == 0)
        s = ddp_reorder(ddp);
    if (s == CRUN_OK && unused > 0)
        s = name_unused(ddp);
    ddp->synced++;
    ddp->since = atomic_load(&ddp->step) + 1;
    return s;
}
