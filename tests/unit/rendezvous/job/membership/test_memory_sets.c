/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/job/membership/memory_sets.h"
#include "tests/worlds/check_main.h"

static struct memory_sets *sets;

static void begin_sets(void)
{
    sets = memory_sets_create();
}

static void end_sets(void)
{
    memory_sets_destroy(sets);
}

static void check_newest(uint64_t newest_epoch, const char *expected)
{
    struct memory_set set = memory_sets_choose(sets, newest_epoch);
    char buf[MEMORY_SET_BYTES + 1];

    ck_assert_str_eq(memory_set_print(&set, buf, sizeof(buf)), expected);
}

FIXTURE(begin_sets, end_sets);

TEST(the_newest_whole_set_is_chosen)
{
    ck_assert(memory_sets_put(sets, 0, "3.12.4:0-1 3.11.4:0-1"));
    ck_assert(memory_sets_put(sets, 5, "3.11.4:2-3"));
    check_newest(9, "3.11.4");
    ck_assert(memory_sets_put(sets, 5, "3.12.4:2-3 3.11.4:2-3"));
    check_newest(9, "3.12.4");
    memory_sets_forget(sets, 0);
    check_newest(9, "");
}

TEST(a_later_epoch_is_newer_whatever_its_step)
{
    ck_assert(memory_sets_put(sets, 0, "2.500.2:0-1 3.7.2:0-1"));
    check_newest(9, "3.7.2");
    check_newest(2, "2.500.2");
    check_newest(1, "");
}

TEST(parts_of_two_sets_make_none)
{
    ck_assert(memory_sets_put(sets, 0, "1.7.4:0-1"));
    ck_assert(memory_sets_put(sets, 1, "1.8.4:2-3"));
    check_newest(9, "");
    ck_assert(memory_sets_put(sets, 1, "2.7.4:2-3"));
    check_newest(9, "");
    ck_assert(memory_sets_put(sets, 1, "1.7.5:2-4"));
    check_newest(9, "");
}

TEST(a_copy_completes_a_set)
{
    ck_assert(memory_sets_put(sets, 0, "1.8.4:0-1 1.7.4:0-1 1.7.4:2-3"));
    check_newest(9, "1.7.4");
}

TEST(a_shared_section_must_be_somewhere)
{
    ck_assert(memory_sets_put(sets, 0, "1.8.4:0-1- 1.8.4:2-3-"));
    check_newest(9, "");
    ck_assert(memory_sets_put(sets, 1, "1.8.4:2-3+"));
    check_newest(9, "1.8.4");
}

TEST(what_a_node_holds_and_lacks)
{
    struct memory_set set = { .epoch = 1, .step = 8, .world = 8 };
    char buf[64];

    ck_assert(memory_sets_put(sets, 3, "1.9.8:0-7 1.8.8:0-3+ 1.8.8:6-"));
    ck_assert_str_eq(memory_sets_held(sets, 3, &set, buf, sizeof(buf)), "0-3,6+");
    ck_assert_str_eq(memory_sets_held(sets, 2, &set, buf, sizeof(buf)), "");
    ck_assert(memory_sets_has(sets, 3, &set, 2, 3));
    ck_assert(!memory_sets_has(sets, 3, &set, 4, 2));
    ck_assert(memory_sets_has(sets, 3, &set, 0, 0));
    ck_assert(!memory_sets_lacks(sets, 3, &set, 0, 4));
    ck_assert(memory_sets_lacks(sets, 3, &set, 2, 4));
    ck_assert(memory_sets_lacks(sets, 4, &set, 0, 4));
    ck_assert(memory_sets_put(sets, 3, "1.8.8:0-3-"));
    ck_assert(memory_sets_lacks(sets, 3, &set, 0, 4));
}

static const char *const nonsense[] = {
    "x",         "1.2.3",         "1.2.3:",
    "1.2.3:+",   "1.2.3:0-3",     "1.2.0:0",
    "0.2.3:0",   "1.2.3:0-2 ",    " 1.2.3:0-2",
    "1.2.3:2-1", "1.2.3:0-2+ ++", "1.2.3:0-2,3",
    "1..3:0",    "-1.2.3:0",      "1.2.3 :0",
    "1.2.3:0 -", "1.2.3:0-2++",   "1.2.99999999999:0",
    "1.2.3:0,",  "1.2.3:0,7",     "18446744073709551616.2.3:0-2",
};

TEST_EACH(nonsense_holds_nothing, nonsense)
{
    ck_assert(memory_sets_put(sets, 1, "1.2.3:0-2"));
    ck_assert(!memory_sets_put(sets, 1, nonsense[_i]));
    check_newest(9, "");
}

/* -- against a model -------------------------------------------------------------- */

enum { NODES = 5, PER_NODE = 2, WORLD = NODES * PER_NODE, SETS = 6 };

/* Which node holds which part of which set. */
struct model {
    struct memory_set set[SETS];
    bool has_shared[SETS];
    bool own[SETS][WORLD][NODES], shared[SETS][NODES];
};

static bool is_held(const bool *by_node, const bool *lives)
{
    for (int n = 0; n < NODES; n++)
        if (by_node[n] && lives[n])
            return true;
    return false;
}

static bool is_newer(const struct memory_set *a, const struct memory_set *b)
{
    return a->epoch != b->epoch ? a->epoch > b->epoch : a->step > b->step;
}

static struct memory_set newest_of(const struct model *m, const bool *lives,
                                   uint64_t newest_epoch)
{
    struct memory_set newest = { .world = 0 };

    for (int s = 0; s < SETS; s++) {
        bool whole = m->set[s].epoch <= newest_epoch &&
                     (!m->has_shared[s] || is_held(m->shared[s], lives));

        for (uint32_t r = 0; r < m->set[s].world; r++)
            whole = whole && is_held(m->own[s][r], lives);
        if (whole && (!newest.world || is_newer(&m->set[s], &newest)))
            newest = m->set[s];
    }
    return newest;
}

/* Rank by rank, in any order of sets. */
static void report_node(const struct model *m, int node)
{
    char text[SETS * WORLD * 16] = "";
    int from = rand() % SETS;

    for (int i = 0; i < SETS; i++) {
        int s = (from + i) % SETS;
        bool knows = false;

        for (uint32_t r = 0; r < m->set[s].world; r++)
            if (m->own[s][r][node]) {
                size_t used = strlen(text);

                snprintf(text + used, sizeof(text) - used, "%s%d.%d.%d:%u%s",
                         used ? " " : "", (int)m->set[s].epoch, (int)m->set[s].step,
                         (int)m->set[s].world, r,
                         !m->has_shared[s]              ? ""
                         : m->shared[s][node] && !knows ? "+"
                                                        : "-");
                knows = true;
            }
    }
    ck_assert(memory_sets_put(sets, (uint32_t)node, text));
}

static void fill_model(struct model *m)
{
    int chance = 1 + rand() % 12; /* of 12: that a node holds a part */

    memset(m, 0, sizeof(*m));
    for (int s = 0; s < SETS; s++) {
        m->set[s] = (struct memory_set){ .epoch = 1 + (uint64_t)s / 2 % 3,
                                         .step = 3 + (uint64_t)(s * 7 % 5),
                                         .world = 1 + (uint32_t)rand() % WORLD };
        m->has_shared[s] = rand() % 2;
        for (uint32_t r = 0; r < m->set[s].world; r++)
            for (int n = 0; n < NODES; n++) {
                m->own[s][r][n] = rand() % 12 < chance;
                if (m->own[s][r][n] && m->has_shared[s] && rand() % 3 == 0)
                    m->shared[s][n] = true;
            }
    }
}

static void check_against(const struct model *m, const bool *lives)
{
    for (uint64_t epoch = 0; epoch < 4; epoch++) {
        struct memory_set newest = newest_of(m, lives, epoch);
        char expected[MEMORY_SET_BYTES + 1];

        check_newest(epoch, memory_set_print(&newest, expected, sizeof(expected)));
    }
}

TEST(any_reports_and_losses_against_a_model)
{
    unsigned found = 0;

    for (unsigned round = 0; round < 3000; round++) {
        bool lives[NODES];
        struct model m;

        srand(round);
        fill_model(&m);
        for (int n = 0; n < NODES; n++) {
            lives[n] = true;
            report_node(&m, n);
        }
        for (int lost = rand() % NODES, n = 0; n < lost; n++) {
            int node = rand() % NODES;

            lives[node] = false;
            if (rand() % 2)
                memory_sets_forget(sets, (uint32_t)node);
            else
                ck_assert(!memory_sets_put(sets, (uint32_t)node, "1.7.1:0 nonsense"));
        }
        check_against(&m, lives);
        found += newest_of(&m, lives, 3).world > 0;
    }
    ck_assert_uint_gt(found, 500);
    ck_assert_uint_lt(found, 2500);
}
