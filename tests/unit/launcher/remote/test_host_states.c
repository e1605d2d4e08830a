/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <stdlib.h>

#include "launcher/remote/host_addresses.h"
#include "launcher/remote/host_states.h"
#include "launcher/remote/rsh_command.h"
#include "launcher/remote/ssh_failure.h"
#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"

#define COUNT(table) ((int)(sizeof(table) / sizeof((table)[0])))

/* -- the life of a host ------------------------------------------------------------ */

struct life {
    enum host_event events[12];
    enum host_state end;
};

static const struct life lives[] = {
    { { HOST_EV_CONNECT, HOST_EV_HELLO, HOST_EV_LISTENING, HOST_EV_START,
        HOST_EV_EXITED },
      HOST_EXITED },
    /* the end of its connection says nothing then */
    { { HOST_EV_CONNECT, HOST_EV_HELLO, HOST_EV_LISTENING, HOST_EV_START,
        HOST_EV_EXITED, HOST_EV_CLOSED },
      HOST_EXITED },
    { { HOST_EV_CONNECT, HOST_EV_ABSENT, HOST_EV_HELLO }, HOST_CHECKING },
    { { HOST_EV_CONNECT, HOST_EV_ABSENT, HOST_EV_WANTED, HOST_EV_HELLO },
      HOST_CHECKING },
    { { HOST_EV_CONNECT, HOST_EV_OTHER, HOST_EV_CONNECT, HOST_EV_ABSENT,
        HOST_EV_HELLO },
      HOST_CHECKING },
    /* a pushed copy of another version is not pushed again */
    { { HOST_EV_CONNECT, HOST_EV_ABSENT, HOST_EV_OTHER }, HOST_FAILED },
    { { HOST_EV_CONNECT, HOST_EV_BUSY, HOST_EV_CONNECT, HOST_EV_CLOSED }, HOST_FAILED },
    { { HOST_EV_CONNECT, HOST_EV_TIMEOUT }, HOST_FAILED },
    { { HOST_EV_CONNECT, HOST_EV_HELLO, HOST_EV_REFUSED, HOST_EV_LISTENING },
      HOST_FAILED },
    { { HOST_EV_CONNECT, HOST_EV_HELLO, HOST_EV_LISTENING, HOST_EV_TIMEOUT },
      HOST_READY },
    { { HOST_EV_CONNECT, HOST_EV_HELLO, HOST_EV_LISTENING, HOST_EV_CLOSED },
      HOST_FAILED },
    { { HOST_EV_CONNECT, HOST_EV_HELLO, HOST_EV_LISTENING, HOST_EV_START,
        HOST_EV_CLOSED },
      HOST_LOST },
    { { HOST_EV_CONNECT, HOST_EV_HELLO, HOST_EV_LISTENING, HOST_EV_START,
        HOST_EV_DETACHED, HOST_EV_CLOSED },
      HOST_DETACHED },
    /* no host starts before it is asked to, or out of order */
    { { HOST_EV_HELLO, HOST_EV_LISTENING, HOST_EV_START }, HOST_IDLE },
    { { HOST_EV_CONNECT, HOST_EV_START, HOST_EV_EXITED }, HOST_CONNECTING },
};

TEST_EACH(a_host_lives_by_the_table, lives)
{
    const struct life *life = &lives[_i];
    enum host_state state = HOST_IDLE;

    for (int i = 0; i < COUNT(life->events); i++)
        if (life->events[i])
            state = host_state_edge(state, life->events[i]).to;
    ck_assert_str_eq(host_state_name(state), host_state_name(life->end));
}

TEST(the_end_is_the_end)
{
    for (int s = HOST_DETACHED; s < HOST_STATE_COUNT; s++) {
        ck_assert(host_state_is_over((enum host_state)s));
        ck_assert(host_state_has_answered((enum host_state)s));
        for (int ev = 1; ev < HOST_EVENT_COUNT; ev++) {
            struct host_edge edge = host_state_edge((enum host_state)s,
                                                    (enum host_event)ev);

            ck_assert_int_eq(edge.to, s);
            ck_assert_int_eq(edge.act, HOST_ACT_NONE);
        }
    }
}

/* A connection may end, or be cut off, at any time. */
TEST(no_state_waits_for_a_closed_connection)
{
    for (int s = HOST_CONNECTING; s <= HOST_RUNNING; s++)
        ck_assert(
            host_state_is_over(host_state_edge((enum host_state)s, HOST_EV_CLOSED).to));
}

/* -- words of ssh ------------------------------------------------------------------ */

static const struct {
    const char *said, *means;
    bool busy;
} words[] = {
    { "ssh: connect to host a port 22: Connection refused\r\n", "did not answer",
      false },
    { "ssh: connect to host a port 22: Connection timed out", "did not answer", false },
    { "Connection timed out during banner exchange", "did not answer", false },
    { "kex_exchange_identification: read: Connection reset by peer\r\nConnection reset "
      "by 10.0.0.1 port 22",
      "closed the connection", true },
    { "kex_exchange_identification: Connection closed by remote host",
      "closed the connection", true },
    { "me@a: Permission denied (publickey).", "refused the key", false },
    { "No ED25519 host key is known for a.\r\nHost key verification failed.",
      "unknown host key (\"ssh HOST\" once, or ssh-keyscan HOST >> ~/.ssh/known_hosts)",
      false },
    { "ssh: Could not resolve hostname a: Name or service not known",
      "no known address", false },
    { "head: write error: No space left on device", "no space left", false },
    { "crun: error while loading shared libraries: libcjson.so.1: cannot open shared "
      "object file: No such file or directory",
      "cannot run this crun", false },
    { "", "could not be started", false },
};

TEST_EACH(words_of_ssh_are_understood, words)
{
    bool busy;

    ck_assert_str_eq(ssh_failure_explain(words[_i].said, &busy), words[_i].means);
    ck_assert_int_eq(busy, words[_i].busy);
}

/* -- the command ------------------------------------------------------------------- */

static const struct {
    const char *program, *ssh_args, *host, *command;
} commands[] = {
    { NULL, "-p 2222 -o BatchMode=no", "me@a",
      "ssh -T -x -p 2222 -o BatchMode=no -o BatchMode=yes -o ConnectTimeout=10 "
      "-o ConnectionAttempts=1 -o ServerAliveInterval=15 me@a sh" },
    { NULL, NULL, "localhost", "sh" },
    { "docker exec -i", NULL, "a", "docker exec -i a sh" },
    { "docker  exec\t-i -u me", NULL, "localhost",
      "docker exec -i -u me localhost sh" },
    { "kubectl exec -i", NULL, "a", "kubectl exec -i a -- sh" },
    { "/usr/bin/oc exec -i", NULL, "a", "/usr/bin/oc exec -i a -- sh" },
    { "kubectl exec -i {} -c main --", NULL, "a", "kubectl exec -i a -c main -- sh" },
    { "rsh", "-l me", "a", "rsh -l me a sh" },
};

TEST_EACH(a_host_is_reached_by_a_command, commands)
{
    char **argv = rsh_command(commands[_i].program, commands[_i].ssh_args,
                              commands[_i].host);
    char *joined = xstrdup("");

    for (char **word = argv; *word; word++) {
        char *more = xasprintf("%s%s%s", joined, word > argv ? " " : "", *word);

        free(joined);
        joined = more;
    }
    ck_assert_str_eq(joined, commands[_i].command);
    free(joined);
    rsh_free(argv);
}

TEST(the_address_that_ssh_found_is_the_first)
{
    char **list = host_addresses_list("192.0.2.7 51000 192.0.2.99 22");

    ck_assert_str_eq(list[0], "192.0.2.99");
    for (char **a = list; *a; a++) {
        ck_assert_str_ne(*a, "127.0.0.1");
        free(*a);
    }
    free(list);
    list = host_addresses_list("nonsense");
    ck_assert_ptr_nonnull(list[0]);
    for (char **a = list; *a; a++)
        free(*a);
    free(list);
}
