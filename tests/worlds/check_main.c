/* SPDX-License-Identifier: MIT */
#include "tests/worlds/check_main.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* Under nohup, or behind a shell's &, some are ignored, and would be in what is
 * tested. */
static void have_usual_signals(void)
{
    for (int signo = 1; signo < NSIG; signo++)
        signal(signo, SIG_DFL);
}

/* A test must not use the key of the user who runs it. */
static void have_no_key(void)
{
    static const char *const variables[] = {
        "CREDENTIALS_DIRECTORY", "CRUN_KEY_FILE",  "CRUN_REQUIRE_KEY",
        "CRUND_KEY_DIR",         "CRUND_KEY_FILE", "CRUND_REQUIRE_KEY",
        "PET_KEY_FILE",          "PET_REQUIRE_KEY"
    };

    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    setenv("XDG_CONFIG_HOME", "/dev/null", 1);
}

int check_main(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    have_usual_signals();
    have_no_key();
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

void print_skipped(const char *reason)
{
    printf("skipped: %s\n", reason);
    fflush(stdout); /* a child of the case ends by _exit */
}
