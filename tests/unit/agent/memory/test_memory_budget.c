/* SPDX-License-Identifier: MIT */
#include "agent/memory/memory_budget.h"

#include <string.h>

#include "tests/worlds/check_main.h"

#define GIB (UINT64_C(1) << 30)

static const struct memory_free ten = { 10 * GIB, "this machine" };

TEST(a_part_of_the_machine_stays_free)
{
    ck_assert_uint_eq(memory_budget_parse("MemTotal:       3200 kB\n"
                                          "MemFree:         100 kB\n"
                                          "MemAvailable:   2000 kB\n"),
                      1900 << 10);
    ck_assert_uint_eq(memory_budget_parse("MemTotal: 3200 kB\nMemAvailable: 99 kB\n"),
                      0);
    ck_assert_uint_eq(memory_budget_parse(""), 0);
}

TEST(this_machine_has_some)
{
    struct memory_free now = memory_budget_free();

    ck_assert_uint_gt(now.bytes, 1 << 20);
    ck_assert_uint_lt(now.bytes, UINT64_C(1) << 50);
}

static const struct {
    uint64_t limit, granted, resident, more;
    const char *refusal; /* NULL: granted */
} cases[] = {
    { 0, 0, 0, 10 * GIB, NULL },
    { 0, 0, 0, 10 * GIB + 1, "this machine has 10.00 GiB left" },
    /* what was granted and not yet written is not free, though it looks so */
    { 0, 6 * GIB, 0, 4 * GIB, NULL },
    { 0, 6 * GIB, 0, 5 * GIB, "this machine has 4.00 GiB left" },
    { 0, 6 * GIB, 6 * GIB, 10 * GIB, NULL },
    { 0, 60 * GIB, 0, 1, "1 bytes more are needed, and this machine has 0 bytes left" },
    { 8 * GIB, 6 * GIB, 6 * GIB, 2 * GIB, NULL },
    { 8 * GIB, 6 * GIB, 6 * GIB, 2 * GIB + 1, "--memory-limit is 8.00 GiB" },
    { 5 << 20, 4096, 0, 3 << 20, NULL },
    { 5 << 20, 4096, 0, (5 << 20) + 512,
      "5.0 MiB more are needed, 4.0 KiB are in use, "
      "and --memory-limit is 5.0 MiB" },
    { 8 * GIB, 9 * GIB, 9 * GIB, 1, "--memory-limit is 8.00 GiB" },
    { 8 * GIB, 1, 1, UINT64_MAX, "--memory-limit is 8.00 GiB" },
    { 0, 1, 0, UINT64_MAX, "this machine has 10.00 GiB left" },
};

TEST_EACH(memory_is_counted_before_it_is_taken, cases)
{
    struct err e = { .text = "" };
    int rc = memory_budget_check(cases[_i].limit, &ten, cases[_i].granted,
                                 cases[_i].resident, cases[_i].more, &e);

    ck_assert_msg((rc == 0) == (cases[_i].refusal == NULL), "%s", e.text);
    if (cases[_i].refusal)
        ck_assert_msg(strstr(e.text, cases[_i].refusal) != NULL, "%s", e.text);
}
