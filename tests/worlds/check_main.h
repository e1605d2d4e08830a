/* SPDX-License-Identifier: MIT */
#pragma once

#include <check.h>
#include <stdbool.h>
#include <unistd.h>

/*
 * A test is written as TEST(what_holds) { ... } and is run by the main of check_main.c,
 * in the order of the file: no list of them is kept. CK_RUN_CASE=what_holds selects it.
 * TEST_EACH is run for each row of a table, TEST_LOOP for each number from `from` to
 * below `to`; the number is _i. TEST_RAISES is a loop whose runs end by that signal.
 */
#define TEST(name) TEST_LOOP(name, 0, 1)
#define TEST_EACH(name, table)                                                         \
    TEST_LOOP(name, 0, (int)(sizeof(table) / sizeof((table)[0])))
#define TEST_LOOP(name, from, to) TEST_RAISES(name, 0, from, to)
#define TEST_RAISES(name, signo, from, to)                                             \
    static void name(int _i);                                                          \
    CHECK_BEFORE_MAIN(name##_added)                                                    \
    {                                                                                  \
        static const TTest test = { #name, name, __FILE__, __LINE__ };                 \
        check_add(&test, signo, from, to);                                             \
    }                                                                                  \
    static void name(int _i)

/* For the tests that follow: what is called before and after each (NULL: nothing). */
#define FIXTURE(begin, end) CHECK_SET(__LINE__, check_set_fixture(begin, end))

/* For the tests that follow: unless can_try() says so, each is skipped. */
#define NEEDS(can_try, reason) CHECK_SET(__LINE__, check_set_need(can_try, reason))

void check_add(const TTest *test, int signo, int from, int to);
void check_set_fixture(void (*begin)(void), void (*end)(void));
void check_set_need(bool (*can_try)(void), const char *reason);

#define CHECK_BEFORE_MAIN(name)                                                        \
    __attribute__((constructor(1000 + __LINE__))) static void name(void)
#define CHECK_SET(line, call) CHECK_SET_AT(line, call)
#define CHECK_SET_AT(line, call)                                                       \
    CHECK_BEFORE_MAIN(check_set_##line)                                                \
    {                                                                                  \
        call;                                                                          \
    }                                                                                  \
    struct check_set

/* Run a suite as Check's environment variables say. Returns main's exit status. */
int check_main(Suite *suite);
/* All at the same time, each in a process of its own, since their cases mostly wait. */
int check_main_together(Suite *const *suites, unsigned count);

/* End a case that cannot be tried here. scripts/run-tests counts it as skipped. */
#define SKIP_UNLESS(can_try, reason)                                                   \
    do {                                                                               \
        if (!(can_try)) {                                                              \
            print_skipped(reason);                                                     \
            return;                                                                    \
        }                                                                              \
    } while (0)
#define SKIP_UNLESS_ROOT() SKIP_UNLESS(geteuid() == 0, "only root can be another user")

void print_skipped(const char *reason);
