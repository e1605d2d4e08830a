/* SPDX-License-Identifier: MIT */
/* Where a client looks for its rendezvous, which of several answers it takes, and
 * names. */
#include "tests/worlds/client_world.h"

FIXTURE(setup, teardown);

TEST(endpoints_are_tried_in_turn)
{
    struct client_config config;
    char endpoints[128];
    int fd;

    start_server(true, NULL);
    snprintf(endpoints, sizeof(endpoints), "127.0.0.1:%u,localhost:%u", dead_port(&fd),
             port);
    config = config_for(endpoints);
    start_agent(&config);
    wait_until_told("START");
    expect("out; back; JOINED; START; ");
    close(fd);
}

TEST(no_peer_there_is_told_and_given_up)
{
    struct client_config config;
    char endpoint[64], refused[128];
    int fd;

    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%u", dead_port(&fd));
    snprintf(refused, sizeof(refused), "%s: Connection refused", endpoint);
    config = config_for(endpoint);
    config.session.connect_for_ms = 300;
    start_agent(&config);
    wait_until_told("out");
    ck_assert_str_eq(agent.why, refused);
    wait_until_told("abandoned");
    expect("out; abandoned; ");
    ck_assert_ptr_nonnull(strstr(agent.why, refused));
    close(fd);
}

/* How many connections to that port are asked for and not answered. */
static unsigned asking(uint16_t number)
{
    FILE *table = fopen("/proc/self/net/tcp", "re");
    char line[256];
    unsigned count = 0, remote, state;

    ck_assert_ptr_nonnull(table);
    while (fgets(line, sizeof(line), table))
        count += sscanf(line, " %*d: %*x:%*x %*x:%x %x", &remote, &state) == 2 &&
                 remote == number && state == 2;
    fclose(table);
    return count;
}

TEST(a_connection_that_is_not_answered_is_asked_for_again)
{
    struct client_config config;
    char endpoint[64], byte;
    uint16_t number;
    int filler, fd = full_listener(&filler, &number), taken = -1;

    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%u", number);
    config = config_for(endpoint);
    start_agent(&config);
    while (asking(number) < 2)
        loop_turn(loop, 10);
    expect("");
    close(accept4(fd, NULL, NULL, SOCK_CLOEXEC)); /* the filler: there is room again */
    while (taken < 0 || recv(taken, &byte, 1, MSG_PEEK) < 0) {
        loop_turn(loop, 10);
        if (taken < 0)
            taken = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    }
    ck_assert_uint_eq(asking(number), 0); /* one is enough */
    ck_assert(client_local_address(agent.client, endpoint, sizeof(endpoint)));
    close(taken);
    close(filler);
    close(fd);
}

/* -- several addresses of one rendezvous ------------------------------------------- */

static void join_one_of(const char *endpoints)
{
    struct client_config config = config_for(endpoints);

    config.of_one = true;
    start_agent(&config);
}

/* What stands before the rendezvous in the list: it must not cost a round. */
enum {
    BEFORE_DEAD,
    BEFORE_FULL,
    BEFORE_SILENT,
    BEFORE_UNKNOWN,
    BEFORE_SLOW,
    BEFORE_COUNT
};

TEST_LOOP(the_first_address_that_answers_is_taken, 0, BEFORE_COUNT)
{
    int fd = -1, filler = -1;
    uint64_t began = clock_ms();
    char endpoints[128];
    uint16_t number = 0;

    sem_init(&slow_may_end, 0, 0);
    sem_init(&slow_has_ended, 0, 0);
    start_server(true, NULL);
    if (_i == BEFORE_DEAD)
        number = dead_port(&fd);
    else if (_i == BEFORE_FULL)
        fd = full_listener(&filler, &number);
    else if (_i == BEFORE_SILENT)
        fd = silent_listener(&number);
    snprintf(endpoints, sizeof(endpoints), "%s:%u,127.0.0.1:%u",
             _i == BEFORE_UNKNOWN ? "unknown.test"
             : _i == BEFORE_SLOW  ? "slow.test"
                                  : "127.0.0.1",
             number ? number : 1, port);
    join_one_of(endpoints);
    wait_until_told("START");
    expect("JOINED; START; "); /* and no outage before that */
    ck_assert_uint_lt(clock_ms() - began, CONNECT_FOR_MS);
    sem_post(&slow_may_end);
    close(fd);
    close(filler);
}

TEST(the_failure_of_all_addresses_is_told_with_each_reason)
{
    char endpoints[128], refused[128];
    uint16_t first, second;
    int fd[2];

    first = dead_port(&fd[0]);
    second = dead_port(&fd[1]);
    snprintf(endpoints, sizeof(endpoints), "127.0.0.1:%u,127.0.0.1:%u,unknown.test:1",
             first, second);
    join_one_of(endpoints);
    wait_until_told("out");
    for (int i = 0; i < 2; i++) {
        snprintf(refused, sizeof(refused), "127.0.0.1:%u: Connection refused",
                 i ? second : first);
        ck_assert_msg(strstr(agent.why, refused), "%s", agent.why);
        close(fd[i]);
    }
    ck_assert_msg(strstr(agent.why, "unknown.test"), "%s", agent.why);
}

TEST(silent_addresses_are_told)
{
    char endpoints[128];
    uint16_t number[2];
    int fd[2] = { silent_listener(&number[0]), silent_listener(&number[1]) };
    struct client_config config;

    snprintf(endpoints, sizeof(endpoints), "127.0.0.1:%u,127.0.0.1:%u", number[0],
             number[1]);
    config = config_for(endpoints);
    config.of_one = true;
    config.session.connect_for_ms = 5000;
    start_agent(&config);
    wait_until_told("abandoned");
    close(fd[0]);
    close(fd[1]);
}

TEST_LOOP(the_rendezvous_may_come_into_this_process, 0, 3)
{
    static const char *const elsewhere[] = { "slow.test:1", "unknown.test:1",
                                             "127.0.0.1:%u" };
    struct client_config config;
    char endpoint[64];
    uint16_t number;
    int filler, fd = full_listener(&filler, &number);

    sem_init(&slow_may_end, 0, 0);
    sem_init(&slow_has_ended, 0, 0);
    snprintf(endpoint, sizeof(endpoint), elsewhere[_i], number);
    config = config_for(endpoint);
    start_agent(&config);
    loop_turn(loop, 10);
    start_server(false, NULL);
    client_use_server(agent.client, server);
    wait_until_told("START");
    ck_assert_ptr_null(client_peer(agent.client));
    sem_post(&slow_may_end);
    close(fd);
    close(filler);
}

/* -- names ------------------------------------------------------------------ */

TEST(an_unknown_name_is_told)
{
    struct client_config config = config_for("unknown.test:1");

    start_agent(&config);
    wait_until_told("out");
    ck_assert_ptr_nonnull(strstr(agent.why, "unknown.test"));
}

TEST(a_client_does_not_wait_for_its_look_up)
{
    struct client_config config = config_for("slow.test:1");

    sem_init(&slow_may_end, 0, 0);
    sem_init(&slow_has_ended, 0, 0);
    config.session.connect_for_ms = 100;
    start_agent(&config);
    wait_until_told("abandoned");
    expect("abandoned; ");
    sem_post(&slow_may_end);
    sem_wait(&slow_has_ended);
}
