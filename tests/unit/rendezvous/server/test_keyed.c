/* SPDX-License-Identifier: MIT */
/* A server and clients with keys of their own, on one loop, over TCP. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/client/client.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/security/key.h"
#include "rendezvous/common/security/key_ring.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/server/server.h"
#include "tests/worlds/check_main.h"

#define PATIENCE_MS 60000

struct node {
    struct client *client;
    struct key_ring *keys;
    char told[512], why[ERROR_TEXT_MAX_BYTES + 1];
};

static struct loop *loop;
static struct server *server;
static struct key_ring *server_keys;
static struct node node;
static char folder[64], logged[4096];

#define WAIT_FOR(condition)                                                            \
    do {                                                                               \
        uint64_t until_ms = clock_ms() + PATIENCE_MS;                                  \
                                                                                       \
        while (!(condition) && clock_ms() < until_ms)                                  \
            loop_turn(loop, 20);                                                       \
        ck_assert_msg(condition, "%s (why: %s; log: %s)", #condition, node.why,        \
                      logged);                                                         \
    } while (0)

/* -- files and logs --------------------------------------------------------------- */

static const char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void write_keys(const char *name, const struct key *a, const struct key *b)
{
    char text[2 * KEY_TEXT_SIZE], fresh[128];
    int fd;

    key_format(a, text);
    if (b)
        key_format(b, text + strlen(text));
    snprintf(fresh, sizeof(fresh), "%s/.fresh", folder);
    fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    ck_assert_int_eq(rename(fresh, path_of(name)), 0);
}

static struct key_ring *ring_of(const char *name)
{
    struct err e;
    struct key_ring *ring = key_ring_open(path_of(name), &e);

    ck_assert_msg(ring != NULL, "%s", e.text);
    return ring;
}

static struct key new_key(void)
{
    struct key k;

    key_generate(0, &k);
    return k;
}

static void on_line(void *arg, enum log_level level, const char *line)
{
    size_t used = strlen(logged);

    snprintf(logged + used, sizeof(logged) - used, "%s\n", line);
}

static unsigned count_logged(const char *text)
{
    unsigned count = 0;

    for (const char *at = logged; (at = strstr(at, text)); at++)
        count++;
    return count;
}

/* -- a server and a node ---------------------------------------------------------- */

static void on_fatal(void *arg, const char *why)
{
    ck_abort_msg("%s", why);
}

static void start_server(void)
{
    struct server_config config = { .fatal = on_fatal,
                                    .keys = server_keys,
                                    .standalone = true };
    struct sockaddr_in in = { .sin_family = AF_INET };
    struct err e;

    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    memcpy(&config.listen.sa, &in, sizeof(in));
    config.listen.len = sizeof(in);
    server = server_create(loop, &config, &e);
    ck_assert_msg(server != NULL, "%s", server ? "" : e.text);
}

static void on_order(void *arg, const struct msg *m)
{
    struct node *n = arg;
    size_t used = strlen(n->told);

    snprintf(n->told + used, sizeof(n->told) - used, "%s ", proto_name(m->type));
}

static void on_outage(void *arg, bool out, const char *why)
{
    struct node *n = arg;
    size_t used = strlen(n->told);

    snprintf(n->told + used, sizeof(n->told) - used, "%s ", out ? "out" : "back");
    snprintf(n->why, sizeof(n->why), "%s", why);
}

static void on_abandoned(void *arg, const char *why)
{
    struct node *n = arg;
    size_t used = strlen(n->told);

    snprintf(n->told + used, sizeof(n->told) - used, "abandoned ");
    snprintf(n->why, sizeof(n->why), "%s", why);
}

/* Other addresses of the same rendezvous, "ADDRESS:PORT," each. */
static char addresses_before[64];

static void start_node(void)
{
    char endpoint[64];
    struct client_config config = {
        .session = { .join = { .run_id = "job",
                               .incarnation = id128_random(),
                               .host = "here",
                               .workers = 2,
                               .node_rank = -1,
                               .config = { .min_nodes = 1,
                                           .max_nodes = 1,
                                           .lease_ms = 2000,
                                           .join_timeout_ms = 10000,
                                           .last_call_ms = 1000,
                                           .shutdown_grace_ms = 1000,
                                           .failure_grace_ms = 1000,
                                           .scale = JOB_SCALE_NOW } },
                     .connect_for_ms = 10000,
                     .outage_grace_ms = 10000,
                     .seed = 1,
                     .software = "test" },
        .endpoints = endpoint,
        .keys = node.keys,
    };
    struct client_calls calls = {
        .order = on_order, .outage = on_outage, .abandoned = on_abandoned, .arg = &node
    };
    struct err e;

    snprintf(endpoint, sizeof(endpoint), "%s127.0.0.1:%u", addresses_before,
             net_port(server_address(server)));
    config.of_one = *addresses_before != '\0';
    node.client = client_create(loop, &config, &calls, &e);
    ck_assert_msg(node.client != NULL, "%s", node.client ? "" : e.text);
}

/* Each end has a line that says what to do, and nothing was joined. */
static void expect_refusal(const char *at_server, const char *at_node)
{
    start_server();
    start_node();
    WAIT_FOR(node.why[0]);
    ck_assert_msg(strstr(node.why, at_node), "%s", node.why);
    if (at_server)
        WAIT_FOR(count_logged(at_server) == 1);
    ck_assert_ptr_null(strstr(node.told, "JOINED"));
    ck_assert_ptr_null(registry_jobs(server_registry(server)));
}

static void set_up(void)
{
    strcpy(folder, "/tmp/crun-test-keyed-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    loop = loop_create();
    memset(&node, 0, sizeof(node));
    addresses_before[0] = '\0';
    logged[0] = '\0';
    server_keys = NULL;
    log_set_sink(on_line, NULL);
}

static void tear_down(void)
{
    char command[128];

    client_destroy(node.client);
    server_destroy(server);
    loop_turn(loop, 0);
    loop_destroy(loop);
    key_ring_close(node.keys);
    key_ring_close(server_keys);
    log_set_sink(NULL, NULL);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

/* -- tests ------------------------------------------------------------------------ */

FIXTURE(set_up, tear_down);

TEST(a_node_with_the_key_joins)
{
    struct key k = new_key();

    write_keys("a", &k, NULL);
    server_keys = ring_of("a");
    node.keys = ring_of("a");
    start_server();
    start_node();
    WAIT_FOR(strstr(node.told, "START"));
    ck_assert_str_eq(node.told, "JOINED START ");
}

TEST(the_address_where_the_key_is_known_is_taken)
{
    struct server_config plain = { .fatal = on_fatal };
    struct key k = new_key();
    struct server *stranger; /* a rendezvous without a key */
    struct err e;

    ck_assert_int_eq(net_parse_host("127.0.0.1", 0, &plain.listen, &e), 0);
    stranger = server_create(loop, &plain, &e);
    ck_assert_ptr_nonnull(stranger);
    snprintf(addresses_before, sizeof(addresses_before), "127.0.0.1:%u,",
             net_port(server_address(stranger)));
    write_keys("a", &k, NULL);
    server_keys = ring_of("a");
    node.keys = ring_of("a");
    start_server();
    start_node();
    WAIT_FOR(strstr(node.told, "START"));
    ck_assert_str_eq(node.told, "JOINED START ");
    ck_assert_str_eq(node.why, "");
    server_destroy(stranger);
}

TEST(the_first_key_of_a_node_may_be_any_of_the_server)
{
    struct key old = new_key(), fresh = new_key();

    write_keys("a", &old, &fresh);
    write_keys("b", &fresh, NULL);
    server_keys = ring_of("a");
    node.keys = ring_of("b");
    start_server();
    start_node();
    WAIT_FOR(strstr(node.told, "START"));
}

TEST(another_key_is_refused)
{
    struct key a = new_key(), b = new_key();
    char line[128];

    write_keys("a", &a, NULL);
    write_keys("b", &b, NULL);
    server_keys = ring_of("a");
    node.keys = ring_of("b");
    snprintf(line, sizeof(line), "refused: key %s is not in ", b.id);
    expect_refusal(line, "the rendezvous does not accept key ");
    ck_assert_ptr_nonnull(strstr(logged, "both ends need the same key file"));
    ck_assert_ptr_nonnull(strstr(node.why, b.id));
    ck_assert_ptr_nonnull(strstr(node.why, "/b: "));
}

TEST(another_secret_of_the_same_id_is_refused)
{
    struct key a = new_key(), b = a;

    b.secret[0] ^= 1;
    write_keys("a", &a, NULL);
    write_keys("b", &b, NULL);
    server_keys = ring_of("a");
    node.keys = ring_of("b");
    expect_refusal("has another secret here", "the rendezvous does not accept key ");
}

TEST(a_node_without_a_key_is_refused)
{
    struct key a = new_key();

    write_keys("a", &a, NULL);
    server_keys = ring_of("a");
    expect_refusal("refused: it has no key, and this rendezvous asks for one",
                   "; if it asks for a key, this node needs the same key file "
                   "(--key-file)");
}

TEST(a_server_without_a_key_refuses_one)
{
    struct key a = new_key();

    write_keys("a", &a, NULL);
    node.keys = ring_of("a");
    expect_refusal("it has a key and this rendezvous has none (--key-file)",
                   "it seems to have no key, and this node has ");
}

TEST(a_lesser_key_cannot_join)
{
    struct key a = new_key(), view;
    struct err e;

    ck_assert_int_eq(key_derive(&a, ACCESS_VIEW, 0, &view, &e), 0);
    write_keys("a", &a, NULL);
    write_keys("b", &view, NULL);
    server_keys = ring_of("a");
    node.keys = ring_of("b");
    expect_refusal(NULL, "agent");
    ck_assert_str_eq(logged, ""); /* it has not even tried */
}

TEST(a_key_that_has_ended_cannot_join)
{
    struct key a = new_key(), ended;
    struct err e;

    ck_assert_int_eq(key_derive(&a, ACCESS_AGENT, time(NULL) - 10, &ended, &e), 0);
    write_keys("a", &a, NULL);
    write_keys("b", &ended, NULL);
    server_keys = ring_of("a");
    node.keys = ring_of("b");
    expect_refusal(NULL, "ended");
}

/* As from a machine whose clock is late. */
TEST(a_server_refuses_a_key_that_has_ended)
{
    struct key a = new_key(), ended;
    struct tls_session *s;
    struct tls_psk psk;
    struct err e;
    int fd, rc = 0;

    ck_assert_int_eq(key_derive(&a, ACCESS_AGENT, time(NULL) - 10, &ended, &e), 0);
    key_psk(&ended, &psk);
    write_keys("a", &a, NULL);
    server_keys = ring_of("a");
    start_server();
    fd = net_connect(server_address(server), &e);
    s = tls_connect(fd, &psk, &e);
    WAIT_FOR((rc = tls_handshake(s)) != 0 || rc != 0);
    ck_assert_int_eq(tls_failure(s), TLS_FAILURE_KEY);
    WAIT_FOR(count_logged(" ended on ") == 1);
    tls_destroy(s);
    close(fd);
}

TEST(the_connection_of_a_retired_key_ends_and_the_node_returns_with_the_next)
{
    struct key old = new_key(), fresh = new_key();

    write_keys("a", &old, &fresh);
    write_keys("b", &old, NULL);
    server_keys = ring_of("a");
    node.keys = ring_of("b");
    start_server();
    start_node();
    WAIT_FOR(strstr(node.told, "START"));
    write_keys("b", &fresh, NULL);
    write_keys("a", &fresh, NULL);
    WAIT_FOR(strstr(node.told, "out"));
    WAIT_FOR(strstr(node.told, "back"));
    ck_assert_ptr_eq(strstr(node.told, "JOINED START out back "), node.told);
    ck_assert_uint_eq(count_logged(old.id), 1);
}
