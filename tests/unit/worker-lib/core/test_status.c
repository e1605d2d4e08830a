/* SPDX-License-Identifier: MIT */
#include "worker-lib/core/status.h"

#include "tests/worlds/check_main.h"

/* Other ranks' words reach a program's terminal by way of the error text. */
TEST(an_error_text_does_not_steer_the_terminal)
{
    static const char words[] = "rank 3: \033[2J\a\xc2\x9b"
                                "31m gr\xc3\xbc\xc3\x9f";
    static const char shown[] = "rank 3: \\x1b[2J\\x07\\xc2\\x9b31m gr\xc3\xbc\xc3\x9f";
    struct err e;

    /* in parentheses, as Check has a macro of that name */
    ck_assert_int_eq(status_fail(CRUN_TIMEOUT, "%s", words), CRUN_TIMEOUT);
    ck_assert_str_eq(crun_error_text(), shown);
    err_set(&e, "%s", words);
    ck_assert_int_eq(status_fail_with(CRUN_ABORTED, &e), CRUN_ABORTED);
    ck_assert_str_eq(crun_error_text(), shown);
    ck_assert_int_eq(status_fail_with(CRUN_OK, &e), CRUN_OK);
    ck_assert_str_eq(crun_error_text(), shown);
}
