/* SPDX-License-Identifier: MIT */
#ifndef TESTS_WORLDS_CHECK_MAIN_H
#define TESTS_WORLDS_CHECK_MAIN_H

#include <check.h>

/* Run the suite as Check's environment variables say. Returns main's exit status. */
int check_main(Suite *suite);

#endif
