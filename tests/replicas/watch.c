/* SPDX-License-Identifier: MIT */
#include "tests/replicas/watch.h"

#include <inttypes.h>
#include <string.h>

#include "rendezvous/client/client.h"
#include "rendezvous/job/registry/job.h"
#include "tests/replicas/crun.h"
#include "tests/replicas/machine.h"
#include "tests/sim/view.h"

#define EPOCHS_MAX 4096
#define RANKS_MAX 64
#define PENDING_MAX 256

struct watch_counts watch_counts;

/* What is known of an epoch by the orders that were obeyed. */
struct epoch {
    struct id128 instance;
    uint32_t group_size, world_size, restarts;
    const struct crun *of[RANKS_MAX]; /* by group rank */
};

static struct epoch epochs[EPOCHS_MAX];
static uint64_t last_epoch;
/* What has left last says that; a rendezvous that dies may leave any of the others. */
static struct view let_out, pending[PENDING_MAX];
static unsigned pending_count;
static uint64_t rendezvous; /* how many there were, the number of the newest */
static uint64_t speaker;    /* the newest that something has left of */

void watch_begin(void)
{
    memset(epochs, 0, sizeof(epochs));
    memset(&let_out, 0, sizeof(let_out));
    last_epoch = pending_count = 0;
    rendezvous = speaker = 0;
}

/* -- the rendezvous
 * -------------------------------------------------------------------- */

static bool is_of_the_job(const struct job *job)
{
    return last_epoch == 0 ||
           id128_equal(&job->membership.instance, &epochs[last_epoch].instance);
}

/* What it has decided and not let out may be found by the next one, or not. */
void watch_turn(struct machine *m)
{
    const struct job *job = crun_job(m->crun);
    char what[128];
    struct view now;

    if (!job || !is_of_the_job(job) || m->crun->led_ms < speaker)
        return;
    view_take(&now, job);
    if (pending_count > 0 &&
        !*view_difference(&pending[pending_count - 1], &now, what, sizeof(what)))
        return;
    if (pending_count == PENDING_MAX) /* the oldest cannot be found any more, mostly */
        memmove(&pending[0], &pending[1], --pending_count * sizeof(pending[0]));
    pending[pending_count++] = now;
}

void watch_flushes(struct machine *m, struct conn *c)
{
    const struct job *job = crun_job(m->crun);
    char what[128];
    struct view now;

    if (!job || !is_of_the_job(job) || job->membership.epoch == 0)
        return;
    view_take(&now, job);
    watch_counts.flushes++;
    if (m->crun->led_ms < speaker &&
        *view_difference(&let_out, &now, what, sizeof(what)))
        trace_violation(&sim.trace, "%s was replaced, and speaks: %s", m->name, what);
    if (m->crun->led_ms < speaker)
        return;
    /* a restart that was charged is given back if the stop has another cause */
    if (let_out.exists &&
        (now.epoch < let_out.epoch || now.restarts + 1 < let_out.restarts))
        trace_violation(&sim.trace,
                        "from epoch %" PRIu64 ", restart %u to %" PRIu64 ", %u",
                        let_out.epoch, let_out.restarts, now.epoch, now.restarts);
    speaker = m->crun->led_ms;
    let_out = now;
    pending_count = 0;
}

void watch_takes_over(struct crun *c)
{
    const struct job *job = crun_job(c);
    char what[128], other[128];
    struct view found;

    watch_counts.takeovers++;
    c->led_ms = ++rendezvous;
    memset(&found, 0, sizeof(found));
    view_take(&found, job);
    if (sim_ends(job && !is_of_the_job(job)))
        trace_violation(&sim.trace, "%s goes on with another job", c->machine->name);
    if (!let_out.exists || !*view_difference(&let_out, &found, what, sizeof(what)))
        return;
    for (unsigned i = pending_count; i > 0; i--)
        if (!*view_difference(&pending[i - 1], &found, other, sizeof(other)))
            return;
    trace_violation(&sim.trace, "%s goes on without what was let out: %s",
                    c->machine->name, what);
}

/* -- the nodes
 * -------------------------------------------------------------------------- */

void watch_starts(struct crun *c, const struct msg *m)
{
    const struct id128 *instance = session_instance(client_session(c->client));
    const struct msg_start *s = &m->start;
    struct epoch *e = &epochs[m->epoch % EPOCHS_MAX];
    const struct epoch *before = &epochs[last_epoch];

    if (sim_ends(last_epoch && !id128_equal(instance, &before->instance))) {
        trace_violation(&sim.trace, "a second job begins on %s", c->machine->name);
        return;
    }
    if (e->group_size == 0)
        *e = (struct epoch){ .instance = *instance,
                             .group_size = s->group_size,
                             .world_size = s->world_size,
                             .restarts = s->restarts };
    if (e->group_size != s->group_size || e->world_size != s->world_size ||
        e->restarts != s->restarts || s->group_rank >= RANKS_MAX ||
        (e->of[s->group_rank] && e->of[s->group_rank] != c))
        trace_violation(&sim.trace,
                        "two rendezvous are obeyed in epoch %" PRIu64
                        ", on %s, rank %u of %u",
                        m->epoch, c->machine->name, s->group_rank, s->group_size);
    e->of[s->group_rank % RANKS_MAX] = c;
    if (m->epoch <= last_epoch)
        return;
    if (last_epoch && s->restarts < before->restarts)
        trace_violation(&sim.trace, "the budget goes back: %u restarts, were %u",
                        s->restarts, before->restarts);
    if (s->restarts > watch_counts.failures)
        trace_violation(&sim.trace, "%u restarts, and %" PRIu64 " failures",
                        s->restarts, watch_counts.failures);
    watch_counts.epochs++;
    last_epoch = m->epoch;
}

void watch_reports(struct crun *c, const struct msg *report)
{
    watch_counts.failures += report->type == MSG_FAILED;
}

void watch_is_done(struct crun *c, const struct msg *m)
{
    if (sim_ends(m->done.reason != JOB_REASON_RELEASED && !sim.healed))
        trace_violation(&sim.trace, "the job is over: %s", m->done.text);
}

void watch_abandons(struct crun *c, const char *why)
{
    if (sim_ends(sim.healed))
        trace_violation(&sim.trace, "%s gives up though all is well: %s",
                        c->machine->name, why);
}
