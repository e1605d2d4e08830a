/* SPDX-License-Identifier: MIT */
/* takes: 25 s */
/*
 * A relay on the path between agents and a rendezvous that share a key. It changes,
 * drops, doubles, swaps, replays, reflects and cuts at an offset of a whole session,
 * from the first byte of the handshake to the last goodbye. Each session is a job of
 * one node on one real server; many run side by side. Whatever he does, each job ends
 * well after its agent has come back, nothing else is admitted, and a job beside
 * notices nothing.
 *
 * CRUN_PATH_STRIDE=1 tries every offset; the default leaves most out.
 */
#include "rendezvous/client/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/security/key_file.h"
#include "rendezvous/common/security/key_ring.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/server/server.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/relay.h"

#define STRIDE_DEFAULT 29
#define SIDE_BY_SIDE 60
#define PATIENCE_MS 60000

/* One job of one node. */
struct ride {
    char run_id[32];
    struct relay *relay; /* NULL: straight to the server */
    struct client *client;
    char told[256];
    unsigned outages;
    bool over;
};

static struct loop *loop;
static struct server *server;
static struct key_ring *ring;
static char folder[64];
static unsigned lines;

static void count_line(void *arg, enum log_level level, const char *line)
{
    lines++;
}

static void on_fatal(void *arg, const char *why)
{
    ck_abort_msg("%s", why);
}

/* With a state directory: its agents wait long for one that is busy. */
static void start_server(const char *state)
{
    char state_dir[96];
    struct server_config config = {
        .standalone = true, .keys = ring, .state_dir = state_dir, .fatal = on_fatal
    };
    struct err e;
    size_t count;

    snprintf(state_dir, sizeof(state_dir), "%s/%s", folder, state);
    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &config.listen, 1, &count, &e), 0);
    server = server_create(loop, &config, &e);
    ck_assert_msg(server != NULL, "%s", e.text);
}

static void setup(void)
{
    char path[96];
    struct rlimit files;
    struct key key;
    struct err e;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
    log_set_sink(count_line, NULL);
    snprintf(folder, sizeof(folder), "/tmp/crun-test-path-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/key", folder);
    key_generate(0, &key);
    ck_assert_msg(key_file_create(path, &key, &e) == 0, "%s", e.text);
    ring = key_ring_open(path, &e);
    ck_assert_msg(ring != NULL, "%s", e.text);
    loop = loop_create();
    start_server("state");
}

static void teardown(void)
{
    char command[128];

    server_destroy(server);
    loop_destroy(loop);
    key_ring_close(ring);
    log_set_sink(NULL, NULL);
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

/* -- a job's agent ----------------------------------------------------------- */

static void ride_report(struct ride *r, enum msg_type type)
{
    struct msg m = { .type = type, .epoch = session_epoch(client_session(r->client)) };

    if (type == MSG_STORE_READY)
        m.store_ready.port = 29500;
    client_report(r->client, &m);
}

static void ride_note(struct ride *r, const char *what)
{
    size_t used = strlen(r->told);

    snprintf(r->told + used, sizeof(r->told) - used, "%s; ", what);
}

static void on_order(void *arg, const struct msg *m)
{
    struct ride *r = arg;
    char text[32];

    if (m->type == MSG_START) {
        snprintf(text, sizeof(text), "START %u", (unsigned)m->epoch);
        ride_note(r, text);
        ride_report(r, MSG_STORE_READY);
        if (r->relay)
            ride_report(r, MSG_FINISHED);
    } else if (m->type == MSG_DONE) {
        ride_note(r, m->done.reason == JOB_REASON_SUCCESS ? "DONE" : "FAILED");
        client_bye(r->client);
        r->over = true;
    } else if (m->type == MSG_REFUSED) {
        ride_note(r, m->refused.text);
        r->over = true;
    }
}

static void on_outage(void *arg, bool out, const char *why)
{
    ((struct ride *)arg)->outages += out;
}

static void on_abandoned(void *arg, const char *why)
{
    struct ride *r = arg;

    ride_note(r, why);
    r->over = true;
}

static void ride_start(struct ride *r, const char *name, const struct relay_plan *plan)
{
    char endpoint[64];
    struct client_config config = {
        .session = { .join = { .incarnation = id128_random(),
                               .host = "here",
                               .workers = 2,
                               .node_rank = -1,
                               .config = { .min_nodes = 1,
                                           .max_nodes = 1,
                                           .lease_ms = 30000,
                                           .join_timeout_ms = PATIENCE_MS,
                                           .last_call_ms = 1000,
                                           .shutdown_grace_ms = 1000,
                                           .failure_grace_ms = 1000,
                                           /* a lease to come back, not a second:
                                            * all sessions share one busy thread */
                                           .strict_fence = true,
                                           .scale = JOB_SCALE_NOW } },
                     .connect_for_ms = PATIENCE_MS,
                     .outage_grace_ms = PATIENCE_MS,
                     .seed = 1,
                     .software = "test" },
        .endpoints = endpoint,
        .keys = ring,
    };
    struct client_calls calls = {
        .order = on_order, .outage = on_outage, .abandoned = on_abandoned, .arg = r
    };
    struct err e;

    memset(r, 0, sizeof(*r));
    snprintf(r->run_id, sizeof(r->run_id), "%s", name);
    memcpy(config.session.join.run_id, r->run_id, sizeof(r->run_id));
    if (plan)
        r->relay = relay_create(loop, server_address(server), plan);
    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%u",
             plan ? relay_port(r->relay) : net_port(server_address(server)));
    r->client = client_create(loop, &config, &calls, &e);
    ck_assert_msg(r->client != NULL, "%s", e.text);
}

static void ride_end(struct ride *r)
{
    client_destroy(r->client);
    relay_destroy(r->relay);
    r->client = NULL;
    r->relay = NULL;
}

static void ride_await(struct ride *r)
{
    uint64_t until = clock_ms() + PATIENCE_MS;

    while (!r->over && clock_ms() < until)
        loop_turn(loop, 20);
    ck_assert_msg(r->over, "%s: no end, told \"%s\"", r->run_id, r->told);
}

/* -- what the rendezvous knows ------------------------------------------------ */

static const struct job *job_called(const char *run_id)
{
    const struct job *j = registry_jobs(server_registry(server));

    while (j && strcmp(j->run_id, run_id) != 0)
        j = j->next;
    return j;
}

static unsigned job_count(void)
{
    unsigned count = 0;

    for (const struct job *j = registry_jobs(server_registry(server)); j; j = j->next)
        count++;
    return count;
}

/* -- the cases ---------------------------------------------------------------- */

static const char *const fault_names[RELAY_FAULT_COUNT] = { "nothing", "flip", "drop",
                                                            "double",  "swap", "replay",
                                                            "reflect", "cut" };

/* How many bytes an unharmed session has in each direction. */
static void measure_session(size_t size[2])
{
    static const struct relay_plan nothing = { .fault = RELAY_NOTHING };
    struct ride r;

    ride_start(&r, "measured", &nothing);
    ride_await(&r);
    ck_assert_str_eq(r.told, "START 1; DONE; ");
    ck_assert_uint_eq(r.outages, 0);
    relay_heard(r.relay, RELAY_TO_SERVER, &size[RELAY_TO_SERVER]);
    relay_heard(r.relay, RELAY_TO_CLIENT, &size[RELAY_TO_CLIENT]);
    ck_assert_uint_gt(size[0], 500);
    ck_assert_uint_gt(size[1], 300);
    ride_end(&r);
}

static void ride_check(const struct ride *r, const struct relay_plan *plan)
{
    const struct job *job = job_called(r->run_id);

    ck_assert_msg(strcmp(r->told, "START 1; DONE; ") == 0,
                  "%s of byte %zu to the %s: \"%s\"", fault_names[plan->fault],
                  plan->offset,
                  plan->direction == RELAY_TO_SERVER ? "server" : "client", r->told);
    ck_assert_ptr_nonnull(job);
    ck_assert_uint_eq(job->membership.epoch, 1);
    ck_assert_int_eq(job->membership.state, JOB_DONE);
}

static unsigned ride_all(struct ride *rides, struct relay_plan *plans, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        ride_await(&rides[i]);
    for (unsigned i = 0; i < count; i++) {
        ride_check(&rides[i], &plans[i]);
        ride_end(&rides[i]);
    }
    return count;
}

static size_t stride(void)
{
    const char *text = getenv("CRUN_PATH_STRIDE");

    return text ? strtoul(text, NULL, 10) : STRIDE_DEFAULT;
}

static void spoil_every_offset(enum relay_fault fault)
{
    static struct ride rides[SIDE_BY_SIDE], beside;
    struct relay_plan plans[SIDE_BY_SIDE];
    unsigned running = 0, total = 0;
    size_t size[2];
    char name[32];

    measure_session(size);
    ride_start(&beside, "beside", NULL);
    for (int d = 0; d < 2; d++)
        for (size_t at = (size_t)fault % stride(); at < size[d]; at += stride()) {
            plans[running] = (struct relay_plan){ fault, (enum relay_direction)d, at };
            snprintf(name, sizeof(name), "%s-%d-%zu", fault_names[fault], d, at);
            ride_start(&rides[running], name, &plans[running]);
            if (++running < SIDE_BY_SIDE)
                continue;
            total += ride_all(rides, plans, running);
            running = 0;
        }
    total += ride_all(rides, plans, running);
    ck_assert_uint_eq(job_count(), total + 2); /* nothing else was admitted */
    ck_assert_str_eq(beside.told, "START 1; ");
    ck_assert_uint_eq(beside.outages, 0);
    ride_end(&beside);
}

FIXTURE(setup, teardown);

TEST_LOOP(a_spoiled_session_admits_nobody_and_recovers, RELAY_FLIP, RELAY_FAULT_COUNT)
{
    spoil_every_offset((enum relay_fault)_i);
}

static bool is_closed_by_peer(int fd)
{
    uint8_t data[4096];
    ssize_t n;

    while ((n = recv(fd, data, sizeof(data), MSG_DONTWAIT)) > 0)
        ;
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

static int dial_server(void)
{
    const struct net_addr *to = server_address(server);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&to->sa, to->len), 0);
    return fd;
}

static void send_recording(const uint8_t *data, size_t size)
{
    uint64_t until = clock_ms() + PATIENCE_MS;
    int fd = dial_server();

    ck_assert_int_eq(send(fd, data, size, MSG_NOSIGNAL), (ssize_t)size);
    while (!is_closed_by_peer(fd) && clock_ms() < until)
        loop_turn(loop, 20);
    ck_assert_msg(clock_ms() < until, "the replayed session is still open");
    close(fd);
}

TEST(a_recorded_session_opens_no_door)
{
    static const struct relay_plan nothing = { .fault = RELAY_NOTHING };
    struct id128 instance;
    const uint8_t *data;
    struct ride r;
    size_t size;

    ride_start(&r, "recorded", &nothing);
    ride_await(&r);
    instance = job_called("recorded")->membership.instance;
    data = relay_heard(r.relay, RELAY_TO_SERVER, &size);
    send_recording(data, size);
    ck_assert(id128_equal(&instance, &job_called("recorded")->membership.instance));
    ck_assert_uint_eq(job_count(), 1);

    /* to the rendezvous of the next day, which has the same key */
    server_destroy(server);
    start_server("state of the next day");
    send_recording(data, size);
    ck_assert_uint_eq(job_count(), 0);
    ride_end(&r);
}

static bool holds_bytes(const uint8_t *data, size_t size, const void *part,
                        size_t length)
{
    return memmem(data, size, part, length) != NULL;
}

TEST(a_recorded_session_tells_nothing)
{
    static const struct relay_plan nothing = { .fault = RELAY_NOTHING };
    static const char *const words[] = { "recorded", "here",  "JOIN",  "incarnation",
                                         "START",    "crund", "29500", "version" };
    struct ride r;

    ride_start(&r, "recorded", &nothing);
    ride_await(&r);
    for (int d = 0; d < 2; d++) {
        size_t size;
        const uint8_t *data = relay_heard(r.relay, (enum relay_direction)d, &size);

        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
            ck_assert_msg(!holds_bytes(data, size, words[i], strlen(words[i])),
                          "\"%s\" is in clear", words[i]);
    }
    ride_end(&r);
}
