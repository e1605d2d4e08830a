/* SPDX-License-Identifier: MIT */
/* The process that notifies; tests/functional/crund/43-notify.py has programs. */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/events/notify.h"
#include "rendezvous/job/events/notify_process.h"
#include "tests/worlds/check_main.h"

static char *folder;

static void make_folder(void)
{
    folder = xstrdup("/tmp/test_notify.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    char *command = xasprintf("rm -rf %s", folder);

    ck_assert_int_eq(system(command), 0);
    free(command);
    free(folder);
}

static struct notify *start_command(const char *command, const char *kinds)
{
    static struct notify_config c;
    struct notify *n;
    struct err e;

    c = (struct notify_config){ .command = command, .kinds = kinds };
    ck_assert_int_eq(notify_check(&c, &e), 0);
    ck_assert_int_eq(notify_start(&c, &n, &e), 0);
    ck_assert_ptr_nonnull(n);
    return n;
}

static void tell(struct notify *n, const char *kind, uint64_t number)
{
    struct msg_event event = { .number = number, .epoch = 1, .run_id = "resnet" };

    strcpy(event.kind, kind);
    notify_event(n, &event);
}

static char *read_told(void)
{
    static char text[4096];
    char *path = xasprintf("%s/told", folder);

    if (fd_read_file(AT_FDCWD, path, text, sizeof(text)) < 0)
        text[0] = '\0';
    free(path);
    return text;
}

FIXTURE(make_folder, remove_folder);

TEST(without_a_flag_there_is_no_process)
{
    struct notify_config c = { .kinds = NULL };
    struct notify *n;
    struct err e;

    ck_assert_int_eq(notify_start(&c, &n, &e), 0);
    ck_assert_ptr_null(n);
    tell(n, "failed", 1);
    notify_end(n);
}

TEST(flags_that_need_others)
{
    struct notify_config kinds = { .kinds = "done" };
    struct err e;

    ck_assert_int_eq(notify_check(&kinds, &e), -1);
}

TEST(commands_run_in_order_before_the_end)
{
    char *command = xasprintf("cat > /dev/null; echo $CRUN_EVENT_SEQUENCE >> %s/told",
                              folder);
    struct notify *n = start_command(command, NULL);

    tell(n, "failed", 1);
    tell(n, "joined", 2); /* calls nobody */
    tell(n, "hang", 3);
    tell(n, "formed", 4); /* the first */
    tell(n, "done", 5);
    notify_end(n);
    ck_assert_str_eq(read_told(), "1\n3\n5\n");
    free(command);
}

TEST(only_kinds_that_were_asked_for)
{
    char *command = xasprintf("echo $CRUN_EVENT_KIND >> %s/told", folder);
    struct notify *n = start_command(command, "joined,formed");

    tell(n, "failed", 1);
    tell(n, "joined", 2);
    tell(n, "formed", 3);
    tell(n, "exploded", 4);
    notify_end(n);
    ck_assert_str_eq(read_told(), "joined\nformed\n");
    free(command);
}

/* Its process does not read: what does not fit is counted, and told then. */
TEST(the_program_never_waits)
{
    char *command = xasprintf("kill -STOP $PPID; echo $CRUN_EVENT_SEQUENCE $PPID >> "
                              "%s/told",
                              folder);
    struct notify *n = start_command(command, "all");
    uint64_t begun;
    int pid, number;

    tell(n, "failed", 1);
    while (sscanf(read_told(), "%d %d", &number, &pid) != 2)
        usleep(1000);
    begun = clock_ms();
    for (uint64_t i = 2; i < 5000; i++)
        tell(n, "failed", i);
    ck_assert_uint_lt(clock_ms() - begun, 60000);
    kill(pid, SIGKILL);
    notify_end(n);
    free(command);
}

/* Each text of a packet ends, whatever the program sends. */
TEST(texts_of_a_program_that_was_taken_over_end)
{
    struct notify_config c = { .command = xasprintf(
                                   "echo ${#CRUN_EVENT_NAME} ${#CRUN_EVENT_RUN_ID} "
                                   "${#CRUN_EVENT_NODE} > %s/told",
                                   folder) };
    struct notify_packet p;
    char want[64];
    int end[2];
    pid_t pid;

    memset(&p, 'x', sizeof(p));
    p.left_out = 0;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, end), 0);
    pid = fork();
    if (pid == 0)
        notify_process_run(&c, end[1]);
    close(end[1]);
    ck_assert_int_eq(send(end[0], &p, sizeof(p), 0), sizeof(p));
    close(end[0]);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    snprintf(want, sizeof(want), "%zu %zu %zu\n", sizeof(p.event.name) - 1,
             sizeof(p.event.run_id) - 1, sizeof(p.event.host) - 1);
    ck_assert_str_eq(read_told(), want);
    free((char *)(uintptr_t)c.command);
}
