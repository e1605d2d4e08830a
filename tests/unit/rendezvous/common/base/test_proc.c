/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/proc.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"

#define REST "7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 8192 100"

static const struct {
    const char *text, *name;
} lines[] = {
    { "12 (sh) S 11 " REST, "sh" },
    { "12 (a b) S 11 " REST, "a b" },
    { "12 (a) Z 1 (b) S 11 " REST, "a) Z 1 (b" },
    { "12 (:-)) S 11 " REST, ":-)" },
    { "12 () S 11 " REST, "" },
};

TEST_EACH(a_name_may_hold_anything, lines)
{
    struct proc_stat s;

    ck_assert(proc_parse_stat(lines[_i].text, &s));
    ck_assert_str_eq(s.name, lines[_i].name);
    ck_assert_int_eq(s.state, 'S');
    ck_assert_int_eq(s.parent, 11);
    ck_assert_uint_eq(s.started, 4711);
}

static const char *const bad[] = {
    "",
    "12",
    "12 (sh",
    "12 )(",
    "12 (sh)",
    "12 (sh) S 11",
    "12 (sh) S 11 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0",
};

TEST_EACH(a_line_that_is_cut_off_says_nothing, bad)
{
    struct proc_stat s;

    ck_assert(!proc_parse_stat(bad[_i], &s));
}

TEST(a_process_is_seen_as_it_is)
{
    struct proc_stat own, child;
    siginfo_t info;
    pid_t pid;

    prctl(PR_SET_NAME, "a) R 1 (b");
    ck_assert(proc_read_stat(getpid(), &own));
    ck_assert_str_eq(own.name, "a) R 1 (b");
    ck_assert_int_eq(own.parent, getppid());
    pid = fork();
    if (pid == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WSTOPPED), 0);
    ck_assert(proc_read_stat(pid, &child));
    ck_assert_int_eq(child.state, 'T');
    ck_assert_int_eq(child.parent, getpid());
    ck_assert_uint_ge(child.started, own.started);
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED), 0);
    ck_assert(!proc_read_stat(pid, &child));
}

TEST(the_namespace_is_the_one_of_the_link)
{
    char link[64] = "", expected[64];

    ck_assert_int_gt(readlink("/proc/self/ns/pid", link, sizeof(link) - 1), 0);
    snprintf(expected, sizeof(expected), "pid:[%llu]",
             (unsigned long long)proc_pid_namespace());
    ck_assert_str_eq(link, expected);
}
