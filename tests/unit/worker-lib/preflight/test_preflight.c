/* SPDX-License-Identifier: MIT */
/* takes: 7 s */
#include "worker-lib/preflight/node_verdict.h"

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/ranks.h"
#include "worker-lib/preflight/connectivity.h"
#include "worker-lib/preflight/link_probe.h"

/* Which nodes go ('1'), by what each one reaches: a row for each node. */
static const struct {
    const char *what;
    unsigned nodes;
    const char *letters, *unfit;
} cases[] = {
    { "all is well", 3,
      "+++"
      "+++"
      "+++",
      "000" },
    { "one reaches nobody", 3,
      "++-"
      "++-"
      "--+",
      "001" },
    { "the first reaches nobody", 3,
      "+--"
      "-++"
      "-++",
      "100" },
    { "one direction is enough", 3,
      "+++"
      "+++"
      "-++",
      "001" },
    { "two that miss each other: the later one", 3,
      "+++"
      "++-"
      "+-+",
      "001" },
    { "two pairs with one in common", 4,
      "+-++"
      "-+-+"
      "+-++"
      "++++",
      "0100" },
    { "one is silent", 3,
      "++-"
      "++-"
      "???",
      "001" },
    { "half are silent", 4,
      "++--"
      "++--"
      "????"
      "????",
      "0011" },
    { "most are silent: they are not all at fault", 3,
      "+--"
      "???"
      "???",
      "100" },
    { "large packets to one are lost", 3,
      "++~"
      "++~"
      "+++",
      "001" },
    { "of two, the other one is silent", 2,
      "+-"
      "??",
      "01" },
};

TEST_EACH(the_nodes_at_fault_go, cases)
{
    bool unfit[8];
    char text[9] = "";

    ck_assert_uint_eq(strlen(cases[_i].letters), cases[_i].nodes * cases[_i].nodes);
    node_verdict_find_unfit(cases[_i].letters, cases[_i].nodes, unfit);
    for (unsigned i = 0; i < cases[_i].nodes; i++)
        text[i] = unfit[i] ? '1' : '0';
    ck_assert_msg(strcmp(text, cases[_i].unfit) == 0, "%s: %s", cases[_i].what, text);
}

static const char *name(const void *arg, unsigned node, char *buf, size_t size)
{
    snprintf(buf, size, "%s%u", (const char *)arg, node);
    return buf;
}

TEST(why)
{
    const char *letters = "+-++"
                          "++++"
                          "+++-"
                          "????";
    const char *stuck = "++~-"
                        "++-+"
                        "++++"
                        "++++";
    char text[80], small[16];

    ck_assert_str_eq(node_verdict_reason(letters, 4, 0, name, "n", text, sizeof(text)),
                     "has no connection with n1, n3");
    ck_assert_str_eq(node_verdict_reason(letters, 4, 2, name, "n", text, sizeof(text)),
                     "has no connection with n3");
    ck_assert_str_eq(node_verdict_reason(letters, 4, 3, name, "n", text, sizeof(text)),
                     "has not answered");
    ck_assert_str_eq(node_verdict_reason(stuck, 4, 2, name, "n", text, sizeof(text)),
                     "has no connection with n1; "
                     "loses large packets (MTU?) to or from n0");
    ck_assert_str_eq(node_verdict_reason(stuck, 4, 3, name, "n", text, sizeof(text)),
                     "has no connection with n0");
    ck_assert_str_eq(
        node_verdict_reason(letters, 4, 0, name, "n", small, sizeof(small)),
        "has no connecti");
}

/* What another process has set in the store, and what node 1 makes of it. */
static const struct {
    uint8_t verdict[4];
    size_t size, why_size; /* SIZE_MAX: no reason is set */
    enum connectivity_result result;
    const char *text;
} verdicts[] = {
    { { 0, 1 }, 2, SIZE_MAX, CONNECTIVITY_UNFIT, "node 1 is reported to be at fault" },
    { { 0, 2 }, 2, SIZE_MAX, CONNECTIVITY_UNFIT, "node 1 is reported to be at fault" },
    { { 255, 0 },
      2,
      SIZE_MAX,
      CONNECTIVITY_OTHERS_UNFIT,
      "node 0 is reported to be at fault" },
    { { 0, 0 }, 2, SIZE_MAX, CONNECTIVITY_COMPLETE, "" },
    { { 0, 1 }, 1, SIZE_MAX, CONNECTIVITY_OTHERS_UNFIT, "no answer from rank 0" },
    { { 0, 0, 0 }, 3, SIZE_MAX, CONNECTIVITY_OTHERS_UNFIT, "no answer from rank 0" },
    { { 0, 1 }, 2, 0, CONNECTIVITY_UNFIT, "node 1 is reported to be at fault" },
    { { 0, 1 }, 2, 3, CONNECTIVITY_UNFIT, "node 1 is reported to be at fault" },
    { { 0, 1 }, 2, 4000, CONNECTIVITY_UNFIT, "node 1 is reported to be at fault" },
    { { 0, 1 }, 2, 264, CONNECTIVITY_UNFIT, "xxxx" }, /* without a NUL */
};

static void put_value(struct team_member *m, const char *name, const void *value,
                      size_t size)
{
    char key[64];

    snprintf(key, sizeof(key), "crun-preflight/%s", name);
    ck_assert_int_eq(store_client_set(m->team.store, key, value, size,
                                      clock_ms() + TEAM_DEADLINE_MS, &m->e),
                     CRUN_OK);
}

static void hear_a_verdict(struct team_member *m)
{
    const struct environment env = { .node = 1, .nodes = 2, .local_rank = 1 };
    const struct connectivity r = {
        .env = &env, .store = m->team.store, .begin_ms = clock_ms(), .limit_ms = 300
    };
    int which = *(int *)m->arg;
    char text[600] = "", reason[4000];

    memset(reason, 'x', sizeof(reason));
    put_value(m, "verdict/0", verdicts[which].verdict, verdicts[which].size);
    if (verdicts[which].why_size != SIZE_MAX)
        put_value(m, "why/1", reason, verdicts[which].why_size);
    ck_assert_int_eq(connectivity_check(&r, text, sizeof(text)),
                     verdicts[which].result);
    ck_assert_msg(strncmp(text, verdicts[which].text, strlen(verdicts[which].text)) ==
                      0,
                  "%s", text);
}

TEST_EACH(any_verdict_of_the_store_is_read_with_care, verdicts)
{
    int which = _i;

    team_run(&(struct team_plan){
        .calls = &backend_self, .size = 1, .body = hear_a_verdict, .arg = &which });
}

/* A name would be looked up, where another process likes. Nothing is waited for. */
TEST(only_numbers_are_called)
{
    char addresses[2][NET_TEXT_SIZE] = { "" }, letters[] = "--", host[NET_TEXT_SIZE];
    const uint64_t until = clock_ms() + TEAM_DEADLINE_MS;
    struct net_addr addr;
    struct link_listener *listener;
    struct err e;

    ck_assert_int_eq(net_parse("127.0.0.1:1", &addr, &e), 0);
    net_set_port(&addr, 0);
    listener = link_listener_start(&addr, &e);
    ck_assert_msg(listener != NULL, "%s", e.text);
    link_listener_address(listener, host, sizeof(host));
    snprintf(addresses[1], NET_TEXT_SIZE, "localhost%s", strchr(host, ':'));
    link_probe_all((const char(*)[NET_TEXT_SIZE])addresses, 2, 0, until, letters);
    ck_assert_str_eq(letters, "--");
    ck_assert_uint_lt(clock_ms(), until);
    link_listener_stop(listener);
}

/* -- which nodes hear which -------------------------------------------------------- */

#define PATIENCE_MS 4000
#define SILENT 1

/* Ranks are nodes here, of one worker each. */
static struct connectivity of_node(const struct team_member *m, struct environment *env)
{
    *env = (struct environment){ .rank = m->team.rank,
                                 .size = m->team.size,
                                 .node = m->team.rank,
                                 .nodes = m->team.size };
    return (struct connectivity){ .env = env,
                                  .store = m->team.store,
                                  .begin_ms = clock_ms(),
                                  .limit_ms = PATIENCE_MS };
}

static void find_all(struct team_member *m)
{
    struct environment env;
    struct connectivity r = of_node(m, &env);
    char text[200] = "";

    r.limit_ms = TEAM_DEADLINE_MS;
    ck_assert_msg(connectivity_check(&r, text, sizeof(text)) == CONNECTIVITY_COMPLETE,
                  "%s", text);
}

TEST(all_reach_each_other)
{
    team_run(
        &(struct team_plan){ .calls = &backend_self, .size = 9, .body = find_all });
}

static void find_one_silent(struct team_member *m)
{
    struct environment env;
    struct connectivity r = of_node(m, &env);
    char text[200] = "";

    if (m->team.rank == SILENT)
        return;
    ck_assert_int_eq(connectivity_check(&r, text, sizeof(text)),
                     CONNECTIVITY_OTHERS_UNFIT);
    ck_assert_str_eq(text, "node 1 has not answered");
}

TEST(a_silent_node_makes_no_later_node_unheard)
{
    team_run(&(struct team_plan){
        .calls = &backend_self, .size = 4, .body = find_one_silent });
}

/* As in reach.c. */
struct place {
    char address[NET_TEXT_SIZE], host[64];
};

#define LONGEST_NODES 2
#define JUDGE 1 /* the node of rank 0, whose own address is read last */

static void put_longest_address(struct team_member *m, unsigned node)
{
    struct place place = { .host = "" };
    char key[32];

    memset(place.address, 'x', sizeof(place.address) - 1);
    snprintf(key, sizeof(key), "crun-preflight/at/%u", node);
    ck_assert_int_eq(store_client_set(m->team.store, key, &place, sizeof(place),
                                      clock_ms() + TEAM_DEADLINE_MS, &m->e),
                     CRUN_OK);
}

/* Rank 0 waits for the address of node 0 before it reads the one of its own node. */
static void give_longest_addresses(struct team_member *m)
{
    const uint64_t until = clock_ms() + TEAM_DEADLINE_MS;
    const char row[LONGEST_NODES] = { LINK_REACHED, LINK_REACHED };
    char lines[LONGEST_NODES * NET_TEXT_SIZE], expected[sizeof(lines)];
    size_t size = sizeof(lines);
    struct place place;
    size_t place_size = sizeof(place);

    ck_assert_int_eq(store_client_get(m->team.store, "crun-preflight/at/1", &place,
                                      &place_size, until, &m->e),
                     CRUN_OK);
    put_longest_address(m, JUDGE);
    put_longest_address(m, 0);
    ck_assert_int_eq(store_client_set(m->team.store, "crun-preflight/row/0", row,
                                      sizeof(row), until, &m->e),
                     CRUN_OK);
    ck_assert_int_eq(store_client_get(m->team.store, "crun-preflight/addresses/0",
                                      lines, &size, until, &m->e),
                     CRUN_OK);
    memset(expected, 'x', sizeof(expected));
    for (unsigned i = 1; i <= LONGEST_NODES; i++)
        expected[i * NET_TEXT_SIZE - 1] = '\n';
    ck_assert_uint_eq(size, sizeof(expected));
    ck_assert_mem_eq(lines, expected, sizeof(expected));
}

static void judge_longest_addresses(struct team_member *m)
{
    struct environment env = { .size = LONGEST_NODES,
                               .node = JUDGE,
                               .nodes = LONGEST_NODES };
    const struct connectivity r = { .env = &env,
                                    .store = m->team.store,
                                    .begin_ms = clock_ms(),
                                    .limit_ms = PATIENCE_MS };
    char text[200];

    if (m->team.rank != 0)
        give_longest_addresses(m);
    else
        (void)connectivity_check(&r, text, sizeof(text));
}

TEST(addresses_of_the_greatest_length_are_collected)
{
    team_run(&(struct team_plan){ .calls = &backend_self,
                                  .size = LONGEST_NODES,
                                  .body = judge_longest_addresses });
}

/* -- a call ------------------------------------------------------------------------ */

#define HOSTS 40
#define STUCK 3
#define REFUSES 5

static const struct net_addr *here(void)
{
    static struct net_addr addr;
    size_t count;
    struct err e;

    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &addr, 1, &count, &e), 0);
    return &addr;
}

/* A port with a listener that never accepts, or one that no other process can have. */
static int take_port(char *text, bool listens)
{
    struct net_addr addr = *here();
    struct err e;
    int fd = listens ? net_listen(&addr, 1, &e) : socket(AF_INET, SOCK_STREAM, 0);

    ck_assert_int_ge(fd, 0);
    if (!listens)
        ck_assert_int_eq(bind(fd, (const struct sockaddr *)&addr.sa, addr.len), 0);
    ck_assert_int_eq(net_local_addr(fd, &addr), 0);
    net_format(&addr, text, NET_TEXT_SIZE);
    return fd;
}

static void call_all(uint64_t limit_ms, const char *expected)
{
    static char addresses[HOSTS][NET_TEXT_SIZE];
    struct link_listener *host[HOSTS] = { NULL };
    char letters[HOSTS + 1] = "";
    int port[HOSTS];
    struct err e;

    for (unsigned i = 0; i < HOSTS; i++) {
        port[i] = -1;
        if (expected[i] != LINK_REACHED) {
            port[i] = take_port(addresses[i], expected[i] == LINK_STUCK);
        } else {
            host[i] = link_listener_start(here(), &e);
            ck_assert_msg(host[i] != NULL, "%s", e.text);
            link_listener_address(host[i], addresses[i], NET_TEXT_SIZE);
        }
    }
    memset(letters, LINK_UNREACHED, HOSTS);
    letters[0] = LINK_REACHED; /* itself */
    link_probe_all((const char(*)[NET_TEXT_SIZE])addresses, HOSTS, 0,
                   clock_ms() + limit_ms, letters);
    ck_assert_str_eq(letters, expected);
    for (unsigned i = 0; i < HOSTS; i++) {
        link_listener_stop(host[i]);
        if (port[i] >= 0)
            close(port[i]);
    }
}

TEST(hosts_that_answer_that_do_not_and_that_are_not_there)
{
    char expected[HOSTS + 1] = "";

    memset(expected, LINK_REACHED, HOSTS);
    expected[STUCK] = LINK_STUCK;
    expected[REFUSES] = LINK_UNREACHED;
    call_all(2000, expected);
}

TEST(there_are_fewer_descriptors_than_nodes)
{
    struct rlimit files;
    char expected[HOSTS + 1] = "";

    memset(expected, LINK_REACHED, HOSTS);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = HOSTS * 3; /* for the hosts themselves */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
    call_all(TEAM_DEADLINE_MS, expected);
}
