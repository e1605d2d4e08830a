/* SPDX-License-Identifier: MIT */
#include "launcher/hosts/host_watch.h"

#include "rendezvous/common/base/loop.h"
#include "tests/worlds/check_main.h"

/* That a list which changes is followed is seen in tests/functional/launch. */
START_TEST(a_program_that_fails_at_first_is_an_error)
{
    static const struct {
        const char *command, *error;
    } cases[] = {
        { "exit 3", "--host-discovery exit 3: exit code 3" },
        { "kill -9 $$", "--host-discovery kill -9 $$: killed by signal 9" },
        { "echo a:x", "--host-discovery:1: a: \"x\" is not a number of slots from 1 "
                      "to 4096" },
        { "true", "no hosts are given" },
    };
    struct hosts_wanted w = { .discovery = cases[_i].command };
    struct hosts h = { .count = 0 };
    struct err e;

    ck_assert_int_eq(hosts_read(&w, &h, &e), -1);
    ck_assert_str_eq(e.text, cases[_i].error);
    hosts_clear(&h);
}
END_TEST

START_TEST(lists_of_the_command_line_are_not_watched)
{
    struct hosts_wanted w = { .lists = { { "a,b" }, 1, false } };
    const struct host_watch_calls calls = { .arg = NULL };
    struct hosts h = { .count = 0 };
    struct loop *loop = loop_create();

    ck_assert_ptr_null(host_watch_create(loop, &w, &h, &calls));
    loop_destroy(loop);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("host watch");
    TCase *t = tcase_create("hosts");

    tcase_add_loop_test(t, a_program_that_fails_at_first_is_an_error, 0, 4);
    tcase_add_test(t, lists_of_the_command_line_are_not_watched);
    suite_add_tcase(s, t);
    return check_main(s);
}
