/* SPDX-License-Identifier: MIT */
#include "tests/worlds/check_main.h"

#include <signal.h>
#include <stdlib.h>

/* Under nohup, or behind a shell's &, some are ignored, and would be in what is
 * tested. */
static void have_usual_signals(void)
{
    for (int signo = 1; signo < NSIG; signo++)
        signal(signo, SIG_DFL);
}

int check_main(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    have_usual_signals();
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
