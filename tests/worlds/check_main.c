/* SPDX-License-Identifier: MIT */
#include "tests/worlds/check_main.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

static Suite *own_suite; /* of TEST */
static void (*fixture_begin)(void), (*fixture_end)(void);
static const char *lacking; /* why the tests that follow are skipped */

/* Check allows 4 s, which a busy machine takes for half a second's work. */
__attribute__((constructor(900))) static void have_time(void)
{
    setenv("CK_DEFAULT_TIMEOUT", "120", 0);
}

static void skip(int i)
{
    print_skipped(lacking);
}

void check_add(const TTest *test, int signo, int from, int to)
{
    TCase *tcase = tcase_create(test->name);
    TTest *skipped;

    if (!own_suite)
        own_suite = suite_create(program_invocation_short_name);
    if (lacking) {
        skipped = malloc(sizeof(*skipped)); /* as long as the process lives */
        *skipped = *test;
        skipped->fn = skip;
        test = skipped;
    }
    tcase_add_checked_fixture(tcase, fixture_begin, fixture_end);
    tcase_add_loop_test_raise_signal(tcase, test, signo, from, to);
    suite_add_tcase(own_suite, tcase);
}

void check_set_fixture(void (*begin)(void), void (*end)(void))
{
    fixture_begin = begin;
    fixture_end = end;
}

void check_set_need(bool (*can_try)(void), const char *reason)
{
    lacking = can_try() ? NULL : reason;
}

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

int check_main_together(Suite *const *suites, unsigned count)
{
    int status, result = EXIT_SUCCESS;

    for (unsigned i = 0; i < count; i++) {
        pid_t pid = fork();

        if (pid < 0)
            return EXIT_FAILURE;
        if (pid == 0)
            return check_main(suites[i]);
    }
    for (unsigned i = 0; i < count; i++)
        if (wait(&status) < 0 || status != 0)
            result = EXIT_FAILURE;
    return result;
}

__attribute__((weak)) int main(void)
{
    return check_main(own_suite);
}

void print_skipped(const char *reason)
{
    printf("skipped: %s\n", reason);
    fflush(stdout); /* a child of the case ends by _exit */
}
