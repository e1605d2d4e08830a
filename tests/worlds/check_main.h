/* SPDX-License-Identifier: MIT */
#ifndef TESTS_WORLDS_CHECK_MAIN_H
#define TESTS_WORLDS_CHECK_MAIN_H

#include <check.h>
#include <unistd.h>

/* Run the suite as Check's environment variables say. Returns main's exit status. */
int check_main(Suite *suite);

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

#endif
