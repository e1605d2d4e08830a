/* SPDX-License-Identifier: MIT */
#include "launcher/hosts/host_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/hosts/host_discovery.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "tests/worlds/check_main.h"

#define PATIENCE_MS 20000

static char folder[] = "/tmp/test-host-watch.XXXXXX", path[64], command[128];
static char reported[256], reason[512];
static unsigned changes, failures;
static struct loop *loop;

static void note_change(void *arg, const struct hosts *h)
{
    char *out = reported;

    changes++;
    *out = '\0';
    for (size_t i = 0; i < h->count; i++)
        out += sprintf(out, "%s%s", i ? " " : "", h->host[i].name);
}

static void note_failure(void *arg, const char *why)
{
    failures++;
    snprintf(reason, sizeof(reason), "%s", why);
}

static const struct host_watch_calls calls = { .changed = note_change,
                                               .failed = note_failure };

/* Replaced as a whole, as by an editor. */
static void write_hosts(const char *text)
{
    char other[80];
    FILE *f;

    snprintf(other, sizeof(other), "%s.new", path);
    f = fopen(other, "w");
    ck_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
    ck_assert_int_eq(rename(other, path), 0);
}

static void wait_for(const unsigned *count, unsigned wanted)
{
    uint64_t end = clock_ms() + PATIENCE_MS;

    while (*count < wanted && clock_ms() < end)
        loop_turn(loop, 100);
    ck_assert_uint_eq(*count, wanted);
}

static void setup(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/hosts", folder);
    snprintf(command, sizeof(command), "cat %s", path);
    write_hosts("a\nb\n");
    loop = loop_create();
}

static void teardown(void)
{
    loop_destroy(loop);
    unlink(path);
    rmdir(folder);
}

START_TEST(a_host_file_that_changes_is_read_again)
{
    struct hosts_wanted w = { .file = path };
    struct hosts h = { .count = 0 };
    struct host_watch *watch;
    struct err e;

    ck_assert_int_eq(hosts_read(&w, &h, &e), 0);
    watch = host_watch_create(loop, &w, &h, &calls);
    write_hosts("a\nb\nc\n");
    wait_for(&changes, 1);
    ck_assert_str_eq(reported, "a b c");

    write_hosts("a:x\n"); /* the last list stays, and it is said once */
    wait_for(&failures, 1);
    ck_assert_ptr_nonnull(strstr(reason, "hosts:1: a: \"x\" is not a number of slots"));
    host_watch_reload(watch);
    ck_assert_uint_eq(failures, 1);

    write_hosts("a\n");
    host_watch_reload(watch); /* at once */
    ck_assert_uint_eq(changes, 2);
    ck_assert_str_eq(reported, "a");
    host_watch_reload(watch); /* although it is the same */
    ck_assert_uint_eq(changes, 3);
    host_watch_destroy(watch);
    hosts_clear(&h);
}
END_TEST

START_TEST(a_program_says_which_hosts_there_are)
{
    struct hosts_wanted w = { .discovery = command };
    struct hosts h = { .count = 0 };
    struct host_watch *watch;
    struct err e;

    ck_assert_int_eq(hosts_read(&w, &h, &e), 0);
    ck_assert_uint_eq(h.count, 2);
    watch = host_watch_create(loop, &w, &h, &calls);
    write_hosts("b:2\nc:2\n");
    host_watch_reload(watch); /* does not wait for the next run */
    wait_for(&changes, 1);
    ck_assert_str_eq(reported, "b c");
    unlink(path);
    host_watch_reload(watch);
    wait_for(&failures, 1);
    ck_assert_ptr_nonnull(strstr(reason, ": exit code 1"));
    host_watch_destroy(watch);
    hosts_clear(&h);
}
END_TEST

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
    struct hosts h = { .count = 0 };

    ck_assert_ptr_null(host_watch_create(loop, &w, &h, &calls));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("host watch");
    TCase *t = tcase_create("hosts");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_host_file_that_changes_is_read_again);
    tcase_add_test(t, a_program_says_which_hosts_there_are);
    tcase_add_loop_test(t, a_program_that_fails_at_first_is_an_error, 0, 4);
    tcase_add_test(t, lists_of_the_command_line_are_not_watched);
    suite_add_tcase(s, t);
    return check_main(s);
}
