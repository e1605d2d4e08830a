/* SPDX-License-Identifier: MIT */
#include "launcher/plan/pmi1.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/fd.h"
#include "tests/worlds/check_main.h"

#define BEGIN                                                                          \
    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"                       \
    "cmd=my_kvsname kvsname=kvs_7/a\n"
#define MEET "cmd=barrier_out\n"
#define END "cmd=finalize_ack\n"

static char sent[4096];

/* A launcher that has answered already: the order of lines is all that counts. */
static int meet(int32_t rank, const char *answers, struct pmi1_meeting *m,
                struct err *e)
{
    int pair[2], rc;
    char fd[16];
    size_t left = strlen(answers);

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    ck_assert_int_eq(fd_write_all(pair[0], answers, &left), 0);
    shutdown(pair[0], SHUT_WR);
    snprintf(fd, sizeof(fd), "%d", pair[1]);
    setenv("PMI_FD", fd, 1);
    setenv("PMI_RANK", "1", 1);
    *m = (struct pmi1_meeting){ .rank = rank };
    rc = pmi1_meet(m, e);
    if (fd_read_all(pair[0], sent, sizeof(sent)) < 0)
        *sent = '\0'; /* a line that was too long was not read to its end */
    close(pair[0]);
    return rc;
}

TEST(rank_0_puts_its_addresses)
{
    struct pmi1_meeting m;
    struct err e;
    int length = 0;
    socklen_t size = sizeof(length);

    ck_assert_int_eq(
        meet(0, BEGIN "cmd=put_result rc=0 msg=success\n" MEET END, &m, &e), 0);
    ck_assert_int_eq(getsockopt(m.listener, SOL_SOCKET, SO_ACCEPTCONN, &length, &size),
                     0);
    ck_assert_int_eq(length, 1);
    ck_assert_ptr_nonnull(strchr(m.endpoints, ':'));
    ck_assert_ptr_nonnull(strstr(sent, "cmd=put kvsname=kvs_7/a key=crun-rendezvous "
                                       "value="));
    ck_assert_ptr_nonnull(strstr(sent, m.endpoints));
    ck_assert_str_eq(m.job, "kvs_7-a");
    close(m.listener);
}

TEST(others_get_them)
{
    struct pmi1_meeting m;
    struct err e;

    ck_assert_int_eq(
        meet(1,
             BEGIN MEET
             "cmd=get_result rc=0 msg=success value=10.0.0.1:7,[fd::1]:7\n" END,
             &m, &e),
        0);
    ck_assert_int_eq(m.listener, 0);
    ck_assert_str_eq(m.endpoints, "10.0.0.1:7,[fd::1]:7");
    ck_assert_str_eq(sent, "cmd=init pmi_version=1 pmi_subversion=1\n"
                           "cmd=get_my_kvsname\ncmd=barrier_in\n"
                           "cmd=get kvsname=kvs_7/a key=crun-rendezvous\n"
                           "cmd=finalize\n");
}

static const struct {
    const char *answers, *error;
} bad[] = {
    { "", "has closed it" },
    { "cmd=response_to_init rc=-1 pmi_version=2\n", "was answered with" },
    { "garbage\n", "\"cmd=init pmi_version=1 pmi_subversion=1\" was answered with "
                   "\"garbage\"" },
    { "cmd=response_to_init rc=0\ncmd=my_kvsname\n", "get_my_kvsname" },
    { BEGIN "cmd=barrier_out rc=1\n", "barrier_in" },
    { BEGIN MEET "cmd=get_result rc=-1 msg=key_not_found\n", "key_not_found" },
    { BEGIN MEET "cmd=get_result rc=0\n", "get_result" },
};

TEST_EACH(an_answer_that_is_none_is_shown, bad)
{
    struct pmi1_meeting m;
    struct err e;

    ck_assert_int_eq(meet(1, bad[_i].answers, &m, &e), -1);
    ck_assert_msg(strstr(e.text, bad[_i].error) != NULL, "%s", e.text);
}

TEST(lines_have_a_limit)
{
    static char answers[8192];
    struct pmi1_meeting m;
    struct err e;

    memset(answers, 'a', sizeof(answers) - 1);
    ck_assert_int_eq(meet(1, answers, &m, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "a line of more than"));
    snprintf(answers, sizeof(answers), BEGIN MEET "cmd=get_result rc=0 value=%01500d\n",
             1);
    ck_assert_int_eq(meet(1, answers, &m, &e), -1);
}

TEST(a_descriptor_is_a_number)
{
    struct pmi1_meeting m = { .rank = 1 };
    struct err e;

    setenv("PMI_FD", "x", 1);
    ck_assert_int_eq(pmi1_meet(&m, &e), -1);
    ck_assert_str_eq(e.text, "PMI_FD is \"x\": it must be a descriptor");
}
