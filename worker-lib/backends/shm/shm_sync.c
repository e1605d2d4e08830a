/* SPDX-License-Identifier: MIT */
/*
 * Waiting for other ranks. First the thread spins, about as long as a rank on another
 * core needs to answer. Then, or as soon as a late rank needs this core, it yields.
 * Then, or as soon as yields turn out to have no effect, it sleeps: the rank that
 * raises the flag wakes it, and now and then it wakes by itself to check whether the
 * ranks that it waits for are alive.
 */
#include <inttypes.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/proc.h"
#include "worker-lib/backends/shm/backend_shm.h"

#define SPINS 4000          /* with a core for each rank */
#define SPINS_SHARED 400    /* other programs may need this core */
#define SPINS_OVERLAPPED 10 /* and so does this one */
#define YIELDS_IN_VAIN 3    /* the rank that needs this core still did not run: */
#define NO_YIELDS 200       /* then this many waits do not yield */
#define YIELD_US 500
#define YIELD_SHARED_US 50 /* if others need the core: awake, a thread runs sooner */
#define LOOK_UP_MS 50
#define LOOK_AT 8 /* other ranks at a time */
#define NAMES_MAX 8
#define NAMES_SIZE 300

static void futex_wake(struct shm_flag *f)
{
    syscall(SYS_futex, &f->value, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void futex_wait(struct shm_flag *f, uint32_t seen, uint64_t ms)
{
    struct timespec t = { .tv_sec = (time_t)(ms / 1000),
                          .tv_nsec = (long)(ms % 1000) * 1000000 };

    syscall(SYS_futex, &f->value, FUTEX_WAIT, seen, &t, NULL, 0);
}

/* This store and this load of `sleepers` are sequentially consistent, as are the
 * sleeper's own two: at least one side sees the other. */
void shm_raise(struct shm_flag *f, uint32_t value)
{
    atomic_store(&f->value, value);
    if (atomic_load(&f->sleepers) > 0)
        futex_wake(f);
}

/* A rank that awaits several rings sleeps on its bell, and counts itself at the flag of
 * each ring. */
static void ring_bell(const struct shm *s, unsigned place)
{
    struct shm_flag *bell = &shm_seat(s, place)->bell;

    atomic_fetch_add(&bell->value, 1);
    futex_wake(bell);
}

void shm_raise_ring(const struct shm *s, struct shm_flag *f, uint32_t value,
                    unsigned place)
{
    atomic_store(&f->value, value);
    if (atomic_load(&f->sleepers) > 0)
        ring_bell(s, place);
}

/* Of a stage that all ranks have in common. */
static struct shm_flag *flag_of(const struct shm *s, enum shm_stage stage,
                                unsigned place)
{
    struct shm_seat *seat = shm_seat(s, place);

    return stage == SHM_COME ? &seat->turn[s->round & 1].come : &seat->step;
}

bool shm_flag_reached(const struct shm_flag *f, uint32_t target)
{
    uint32_t value = atomic_load_explicit(&f->value, memory_order_acquire);

    return (int32_t)(value - target) >= 0;
}

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Others sleep on our flags, and threads of this process on others'. */
void shm_wake_all(struct shm *s)
{
    for (unsigned p = 0; p < s->team.size; p++) {
        struct shm_seat *seat = shm_seat(s, p);

        futex_wake(&seat->turn[0].come);
        futex_wake(&seat->turn[1].come);
        futex_wake(&seat->step);
        ring_bell(s, p);
    }
}

crun_status shm_check_abort(const struct shm *s, struct err *e)
{
    const struct abort_word *why = s->team.aborted;
    crun_status status = abort_get(why);

    if (status != CRUN_OK)
        return abort_error(why, e);
    why = &shm_head(s)->aborted;
    status = abort_get(why);
    if (status != CRUN_OK) {
        err_set(e, "%s", why->reason);
        err_set_code(e, ERROR_TOLD, (unsigned)why->rank);
    }
    return status;
}

/* -- late ranks -------------------------------------------------------------------- */

struct shm_wait {
    struct shm *s;
    const struct op *op;
    enum shm_stage stage;
    unsigned place;               /* of SHM_COME, SHM_STEP */
    uint32_t target;              /* the same */
    const struct shm_exchange *x; /* of SHM_LANES */
    unsigned next;                /* to look at */
    unsigned spins;               /* that are left */
    unsigned near;                /* the first that may need this core, */
    unsigned given;               /* and how often that rank has got it */
};

/* NULL: no lane waits for this rank; `size`: any rank. */
static const struct shm_lane *late_lane(const struct shm_wait *w, unsigned place)
{
    for (unsigned i = 0; i < w->x->lanes; i++) {
        const struct shm_lane *l = &w->x->lane[i];

        if ((place == w->s->team.size || (unsigned)l->op->peer == place) &&
            !shm_flag_reached(l->awaited, l->target))
            return l;
    }
    return NULL;
}

static bool rank_is_late(const struct shm_wait *w, unsigned place)
{
    if (place == w->s->team.rank)
        return false;
    if (w->stage == SHM_LANES)
        return late_lane(w, place) != NULL;
    return !shm_flag_reached(flag_of(w->s, w->stage, place), w->target);
}

/* The operation that waits for this rank; `size`: for any. */
static void describe_wait(const struct shm_wait *w, unsigned place, char *text,
                          size_t size)
{
    const struct shm_lane *l = w->stage == SHM_LANES ? late_lane(w, place) : NULL;
    const struct op *op = l ? l->op : w->op;

    snprintf(text, size, "%s #%" PRIu64, op_name(op->kind), op->sequence);
}

/* Whether it has exited. Its writes before the exit are seen first. */
static crun_status check_peer(const struct shm_wait *w, unsigned place, struct err *e)
{
    struct shm *s = w->s;
    struct shm_seat *seat = shm_seat(s, place);
    uint32_t state = atomic_load(&seat->state);
    char what[80];

    if (!rank_is_late(w, place) || state == SHM_ABSENT ||
        (state == SHM_JOINED && shm_is_alive(s, place)) || !rank_is_late(w, place))
        return CRUN_OK;
    describe_wait(w, place, what, sizeof(what));
    if (atomic_load(&seat->state) == SHM_LEFT)
        err_set(e, "rank %u has left (crun_finalize) before %s",
                s->team.world_rank[place], what);
    else
        err_set(e, "rank %u (pid %d) is gone: it ended during or before %s",
                s->team.world_rank[place], seat->pid, what);
    return CRUN_PEER_LOST;
}

/* Checks the rank that is waited for, and some of the others in turn. */
static crun_status check_common_peers(struct shm_wait *w, struct err *e)
{
    crun_status status = check_peer(w, w->place, e);

    for (unsigned i = 0; i < LOOK_AT && status == CRUN_OK; i++) {
        w->next = (w->next + 1) % w->s->team.size;
        status = check_peer(w, w->next, e);
    }
    return status;
}

static crun_status check_peers(struct shm_wait *w, struct err *e)
{
    crun_status status = CRUN_OK;

    if (w->stage != SHM_LANES)
        return check_common_peers(w, e);
    for (unsigned i = 0; i < w->x->lanes && status == CRUN_OK; i++)
        status = check_peer(w, (unsigned)w->x->lane[i].op->peer, e);
    return status;
}

static bool is_stopped(int pid)
{
    struct proc_stat stat;

    return proc_read_stat(pid, &stat) && stat.state == 'T';
}

/* Returns the place of the first late rank; the team's size: none is late any more. */
static unsigned name_late_ranks(const struct shm_wait *w, char *names, size_t size)
{
    unsigned shown = 0, all = 0, first = w->s->team.size;
    size_t used = 0;

    names[0] = '\0';
    for (unsigned p = 0; p < w->s->team.size; p++) {
        int pid = shm_seat(w->s, p)->pid;

        if (!rank_is_late(w, p))
            continue;
        if (all++ == 0)
            first = p;
        if (shown == NAMES_MAX || used > size - 60)
            continue;
        shown++;
        used += (size_t)snprintf(names + used, size - used, "%srank %u (pid %d%s)",
                                 used ? ", " : "", w->s->team.world_rank[p], pid,
                                 is_stopped(pid) ? ", stopped" : "");
    }
    if (all > shown)
        snprintf(names + used, size - used, " and %u more", all - shown);
    return first;
}

static crun_status fail_late(const struct shm_wait *w, struct err *e)
{
    char names[NAMES_SIZE], what[80], duration[40];
    unsigned first = name_late_ranks(w, names, sizeof(names));

    describe_wait(w, first, what, sizeof(what));
    clock_format_duration(w->op->timeout_ms, duration, sizeof(duration));
    err_set(e, "waited %s in %s for %s", duration, what, names);
    if (first < w->s->team.size)
        err_set_code(e, ERROR_LATE_RANK, w->s->team.world_rank[first]);
    return CRUN_TIMEOUT;
}

/* The reason why the world ended during this wait; if this process ended it, also the
 * rank that was waited for. */
static crun_status fail_by_end(const struct shm_wait *w, struct err *e)
{
    char names[NAMES_SIZE], what[80];

    if (abort_get(w->s->team.aborted) != CRUN_OK) {
        describe_wait(w, name_late_ranks(w, names, sizeof(names)), what, sizeof(what));
        err_set(e, "%s in %s, waiting for %s", w->s->team.aborted->reason, what,
                *names ? names : "no rank");
        err_set_code(e, ERROR_ABORTED, 0);
        return abort_get(w->s->team.aborted);
    }
    return shm_check_abort(w->s, e);
}

/* -- waiting ----------------------------------------------------------------------- */

static void sleep_on(struct shm_flag *f, uint32_t target, uint64_t ms)
{
    uint32_t seen;

    atomic_fetch_add(&f->sleepers, 1);
    seen = atomic_load(&f->value);
    if ((int32_t)(seen - target) < 0)
        futex_wait(f, seen, ms);
    atomic_fetch_sub(&f->sleepers, 1);
}

static bool any_lane_can_move(const struct shm_exchange *x)
{
    for (unsigned i = 0; i < x->lanes; i++)
        if (shm_flag_reached(x->lane[i].awaited, x->lane[i].target))
            return true;
    return false;
}

static void count_sleeper(const struct shm_exchange *x, int by)
{
    for (unsigned i = 0; i < x->lanes; i++)
        atomic_fetch_add(&x->lane[i].awaited->sleepers, (uint32_t)by);
}

/* The same order as in sleep_on: first the sleeper is counted, then it looks. */
static void sleep_on_lanes(const struct shm_exchange *x, uint64_t ms)
{
    struct shm_flag *bell = &shm_seat(x->s, x->s->team.rank)->bell;
    uint32_t seen;

    count_sleeper(x, 1);
    seen = atomic_load(&bell->value);
    atomic_thread_fence(memory_order_seq_cst);
    if (!any_lane_can_move(x))
        futex_wait(bell, seen, ms);
    count_sleeper(x, -1);
}

/* Whether the wait can still succeed, as seen after a sleep. */
static crun_status check_wait(struct shm_wait *w, struct err *e)
{
    crun_status status = check_peers(w, e), end;

    /* a rank that has reported why it leaves is not lost */
    end = status == CRUN_OK ? CRUN_OK : shm_check_abort(w->s, e);
    return end == CRUN_OK ? status : end;
}

/* Sleeps once, until that rank comes or something moves; then checks the wait. */
static crun_status sleep_once(struct shm_wait *w, unsigned place, struct err *e)
{
    uint64_t now = clock_ms(), left;

    if (now >= w->op->deadline_ms)
        return fail_late(w, e);
    left = w->op->deadline_ms - now;
    if (left > LOOK_UP_MS)
        left = LOOK_UP_MS;
    if (w->stage == SHM_LANES)
        sleep_on_lanes(w->x, left);
    else
        sleep_on(flag_of(w->s, w->stage, place), w->target, left);
    return check_wait(w, e);
}

static struct shm_wait begin_wait(struct shm *s, const struct op *op,
                                  enum shm_stage stage)
{
    bool overlaps = op_overlaps(op);

    return (struct shm_wait){
        .s = s,
        .op = op,
        .stage = stage,
        .spins = overlaps     ? SPINS_OVERLAPPED
                 : s->crowded ? SPINS_SHARED
                              : SPINS,
        .near = s->crowded && !overlaps ? 0 : s->team.size,
    };
}

/* Whether a late rank needs this core. A rank that was seen on another core, or was not
 * late, is not checked again, because there may be many. */
static bool core_is_needed(struct shm_wait *w)
{
    unsigned size = w->s->team.size;

    while (w->near < size && (w->near = shm_core_sharer(w->s, w->near)) < size) {
        if (rank_is_late(w, w->near))
            return true;
        w->near++;
        w->given = 0;
    }
    return false;
}

/*
 * Each rank may be in a separate scheduling group, as every session is with autogroups.
 * Then a yield only affects the threads of that group, and another rank does not run:
 * the core becomes free only if this thread sleeps. If a yield works, it is faster.
 */
static bool yields_in_vain(struct shm_wait *w)
{
    if (!core_is_needed(w))
        return false;
    if (w->s->no_yields > 0) {
        w->s->no_yields--;
        return true;
    }
    if (++w->given > YIELDS_IN_VAIN)
        w->s->no_yields = NO_YIELDS;
    return w->given > YIELDS_IN_VAIN;
}

static bool wait_is_over(const struct shm_wait *w)
{
    return w->stage == SHM_LANES
               ? any_lane_can_move(w->x)
               : shm_flag_reached(flag_of(w->s, w->stage, w->place), w->target);
}

/* Spins while the late ranks run on other cores. */
static bool spin_on_flag(struct shm_wait *w)
{
    for (; w->spins > 0 && !core_is_needed(w); w->spins--) {
        if (wait_is_over(w))
            return true;
        pause_cpu();
    }
    return wait_is_over(w);
}

static crun_status await_flag(struct shm_wait *w, struct err *e)
{
    uint64_t yield_until = clock_us() + (w->s->crowded ? YIELD_SHARED_US : YIELD_US);
    crun_status status = CRUN_OK;

    while (status == CRUN_OK && !spin_on_flag(w)) {
        status = fail_by_end(w, e);
        if (status != CRUN_OK)
            break;
        if (yields_in_vain(w))
            status = sleep_once(w, w->near, e);
        else if (!op_overlaps(w->op) && clock_us() < yield_until)
            sched_yield();
        else
            status = sleep_once(w, w->place, e);
    }
    return status;
}

crun_status shm_await(struct shm *s, enum shm_stage stage, unsigned place,
                      uint32_t target, const struct op *op, struct err *e)
{
    struct shm_wait w;

    if (s->crowded)
        shm_core_say(s);
    if (shm_flag_reached(flag_of(s, stage, place), target))
        return CRUN_OK;
    w = begin_wait(s, op, stage);
    w.place = w.next = place;
    w.target = target;
    return spin_on_flag(&w) ? CRUN_OK : await_flag(&w, e);
}

crun_status shm_exchange_await(struct shm_exchange *x, struct err *e)
{
    struct shm_wait w = begin_wait(x->s, x->op, SHM_LANES);

    w.x = x;
    if (x->s->crowded)
        shm_core_say(x->s);
    return spin_on_flag(&w) ? CRUN_OK : await_flag(&w, e);
}

crun_status shm_exchange_check(struct shm_exchange *x, struct err *e)
{
    struct shm_wait w = begin_wait(x->s, x->op, SHM_LANES);
    crun_status status;

    w.x = x;
    status = fail_by_end(&w, e);
    if (status == CRUN_OK && clock_ms() >= x->op->deadline_ms)
        return fail_late(&w, e);
    return status == CRUN_OK ? check_wait(&w, e) : status;
}

crun_status shm_step(struct shm *s, const struct op *op, struct err *e)
{
    crun_status status = CRUN_OK;

    s->step++;
    shm_raise(&shm_seat(s, s->team.rank)->step, s->step);
    for (unsigned p = 0; p < s->team.size && status == CRUN_OK; p++)
        if (p != s->team.rank)
            status = shm_await(s, SHM_STEP, p, s->step, op, e);
    return status;
}

/* -- meeting ----------------------------------------------------------------------- */

const struct shm_call *shm_call_of(const struct shm *s, unsigned place)
{
    return &shm_seat(s, place)->turn[s->round & 1].call;
}

void shm_arrive(struct shm *s, const struct op *op, uint64_t in, uint64_t out)
{
    struct shm_turn *turn;

    s->round++;
    turn = &shm_seat(s, s->team.rank)->turn[s->round & 1];
    turn->call = (struct shm_call){ .kind = op->kind,
                                    .type = op->type,
                                    .op = op->op,
                                    .peer = op->peer,
                                    .count = op->count,
                                    .in = in,
                                    .out = out };
    shm_raise(&turn->come, s->round);
}
