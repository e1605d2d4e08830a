/* SPDX-License-Identifier: MIT */
/* Where ranks in shared memory run; the other ranks are only what their seats say. */
#include <pthread.h>
#include <sys/mman.h>

#include "tests/worlds/check_main.h"
#include "worker-lib/backends/shm/backend_shm.h"

#define RANKS_MAX 256
#define ANYWHERE CPU_SETSIZE /* instead of a core: all of them */

/* -- helpers ----------------------------------------------------------------------- */

static struct shm team_of(unsigned size)
{
    struct shm s = { .team = { .size = size }, .at = shm_layout_of(size) };
    void *base = mmap(NULL, s.at.bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    ck_assert(base != MAP_FAILED);
    s.base = base;
    return s;
}

static cpu_set_t own_mask(void)
{
    cpu_set_t mask;

    ck_assert_int_eq(sched_getaffinity(0, sizeof(mask), &mask), 0);
    return mask;
}

static cpu_set_t only(unsigned core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    return set;
}

/* The n-th core that this thread may use, or its last one. */
static unsigned nth_core(unsigned n)
{
    cpu_set_t mask = own_mask();
    unsigned found = 0;

    for (unsigned core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &mask)) {
            found = core;
            if (n-- == 0)
                break;
        }
    return found;
}

/* The rank's choice among so many cores, the first of which is 0. */
static void allow(const struct shm *s, unsigned place, unsigned core, unsigned cores)
{
    cpu_set_t *set = &shm_seat(s, place)->cpus;

    CPU_ZERO(set);
    for (unsigned c = 0; c < cores; c++)
        if (core == ANYWHERE || core == c)
            CPU_SET(c, set);
}

static unsigned crowded_size(void)
{
    cpu_set_t mask = own_mask();

    return (unsigned)CPU_COUNT(&mask) + 1;
}

/* Each rank of it may use what this thread may. */
static struct shm crowded_team(void)
{
    struct shm s = team_of(crowded_size());

    for (unsigned p = 0; p < s.team.size; p++)
        shm_seat(&s, p)->cpus = own_mask();
    return s;
}

/* -- cases ------------------------------------------------------------------------- */

static const struct spread {
    unsigned ranks, cores;
    unsigned bound[4]; /* the first ranks' cores, or ANYWHERE */
    unsigned most;     /* on one core */
} spreads[] = {
    { 4, 2, { ANYWHERE, ANYWHERE, ANYWHERE, ANYWHERE }, 2 },
    { 4, 3, { ANYWHERE, ANYWHERE, ANYWHERE, ANYWHERE }, 2 },
    { 4, 2, { ANYWHERE, ANYWHERE, 0, 0 }, 2 },
    { 4, 2, { 1, 1, 1, ANYWHERE }, 3 },
    { 4, 1, { 0, 0, 0, 0 }, 4 },
    { 256, 7, { 6, 6, 6, 6 }, 37 },
};

TEST_EACH(ranks_are_spread_evenly_over_what_they_may_use, spreads)
{
    const struct spread *t = &spreads[_i];
    struct shm s = team_of(t->ranks);
    unsigned on[CPU_SETSIZE] = { 0 };

    for (unsigned p = 0; p < t->ranks; p++)
        allow(&s, p, p < 4 ? t->bound[p] : ANYWHERE, t->cores);
    for (unsigned p = 0; p < t->ranks; p++) {
        int core;

        s.team.rank = p;
        core = shm_cores_choose(&s);
        ck_assert(core >= 0 && CPU_ISSET((size_t)core, &shm_seat(&s, p)->cpus));
        on[core]++;
    }
    for (unsigned c = 0; c < t->cores; c++)
        ck_assert_uint_le(on[c], t->most);
}

TEST(nothing_is_chosen_where_nothing_is_known)
{
    struct shm s = team_of(2);

    ck_assert_int_eq(shm_cores_choose(&s), -1);
    shm_cores_share(&s);
    ck_assert(s.crowded);
}

/* Another core in each turn: a thread that is not moved is on half of them. */
TEST(a_rank_moves_and_is_as_free_as_before)
{
    struct shm s = crowded_team();
    cpu_set_t before = own_mask(), after;
    unsigned there = 0;

    for (unsigned i = 0; i < 100; i++) {
        s.team.rank = i % 2;
        shm_cores_share(&s);
        there += sched_getcpu() == shm_cores_choose(&s);
        after = own_mask();
        ck_assert(CPU_EQUAL(&before, &after));
    }
    ck_assert(s.crowded);
    ck_assert_uint_gt(there, 75); /* the scheduler may have moved it again */
}

TEST(a_process_that_was_bound_meanwhile_stays_where_it_is)
{
    struct shm s = crowded_team();
    cpu_set_t last = only(nth_core(CPU_SETSIZE)), after;

    ck_assert_int_eq(sched_setaffinity(0, sizeof(last), &last), 0);
    shm_cores_share(&s); /* rank 0: to the first one */
    after = own_mask();
    ck_assert(CPU_EQUAL(&last, &after));
}

static void *stay_bound(void *arg)
{
    pthread_barrier_t *b = arg;
    cpu_set_t last = only(nth_core(CPU_SETSIZE)), after;

    ck_assert_int_eq(sched_setaffinity(0, sizeof(last), &last), 0);
    pthread_barrier_wait(b);
    pthread_barrier_wait(b);
    after = own_mask();
    ck_assert(CPU_EQUAL(&last, &after));
    return NULL;
}

TEST(other_threads_are_left_alone)
{
    struct shm s = crowded_team();
    pthread_barrier_t b;
    pthread_t thread;

    pthread_barrier_init(&b, NULL, 2);
    ck_assert_int_eq(pthread_create(&thread, NULL, stay_bound, &b), 0);
    pthread_barrier_wait(&b);
    shm_cores_share(&s);
    pthread_barrier_wait(&b);
    pthread_join(thread, NULL);
}

TEST(a_process_that_shares_this_core_is_found)
{
    struct shm s = team_of(RANKS_MAX);
    cpu_set_t here = only(nth_core(CPU_SETSIZE));
    _Atomic uint32_t *cores = (_Atomic uint32_t *)(void *)(s.base + s.at.cores);

    ck_assert_int_eq(sched_setaffinity(0, sizeof(here), &here), 0);
    for (unsigned p = 0; p < RANKS_MAX; p++)
        cores[p] = CPU_SETSIZE;
    ck_assert_uint_eq(shm_core_sharer(&s, 0), RANKS_MAX);
    s.team.rank = 3;
    shm_core_say(&s);
    s.team.rank = RANKS_MAX - 1;
    shm_core_say(&s);
    ck_assert_uint_eq(shm_core_sharer(&s, 0), 3);
    ck_assert_uint_eq(shm_core_sharer(&s, 4), RANKS_MAX - 1);
    ck_assert_uint_eq(shm_core_sharer(&s, RANKS_MAX), RANKS_MAX);
}
