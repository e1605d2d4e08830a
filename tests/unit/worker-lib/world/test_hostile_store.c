/* SPDX-License-Identifier: MIT */
/*
 * A rank joins a world whose store holds wrong values under the names that rank 0
 * uses: crun_init fails with a status and one sentence.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/tcpstore/store_server.h"
#include "tests/worlds/check_main.h"
#include "worker-lib/engine/abort.h"
#include "worker-lib/world/world_internal.h"

#define SIZE 4
#define PATIENCE_MS 60000
#define WAITING_S 0.6 /* the store is asked for a notice meanwhile */

static struct store_server *store;

static struct environment environment_of_rank_1(void)
{
    struct environment env = { .launcher = "test",
                               .rank = 1,
                               .size = SIZE,
                               .nodes = SIZE,
                               .node = 1,
                               .local_size = 1,
                               .host = "127.0.0.1",
                               .port = store_server_port(store),
                               .agent_store = true };

    snprintf(env.job, sizeof(env.job), "hostile-%d", (int)getpid());
    return env;
}

static void open_store(void)
{
    struct net_addr here;
    struct err e;
    size_t count;

    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &here, 1, &count, &e), 0);
    store = store_server_create(&(struct store_server_config){ .listen = &here }, &e);
    ck_assert_msg(store != NULL, "%s", e.text);
}

static void close_store(void)
{
    store_server_destroy(store);
}

static void put_value(const char *name, const void *value, size_t size)
{
    struct environment env = environment_of_rank_1();
    struct store_client *client;
    char key[400];
    struct err e;

    snprintf(key, sizeof(key), "crun/%s/%s", env.job, name);
    ck_assert_int_eq(
        store_client_open(&client, "127.0.0.1", env.port, clock_ms() + PATIENCE_MS, &e),
        CRUN_OK);
    ck_assert_int_eq(
        store_client_set(client, key, value, size, clock_ms() + PATIENCE_MS, &e),
        CRUN_OK);
    store_client_close(client);
}

static crun_status join_as_rank_1(const char *backend, double init_s, struct err *e)
{
    struct environment env = environment_of_rank_1();
    crun_options options = { .backend = backend,
                             .timeout_s = PATIENCE_MS / 1000,
                             .init_timeout_s = init_s };
    crun_world *w = NULL;
    crun_status s = world_create(&w, &env, &options, e);

    ck_assert_ptr_null(w);
    return s;
}

static void expect_refused(const char *backend, crun_status status, const char *words)
{
    struct err e;
    crun_status s = join_as_rank_1(backend, PATIENCE_MS / 1000, &e);

    ck_assert_msg(s == status && strstr(e.text, words), "%s: %s", crun_status_name(s),
                  e.text);
    ck_assert_ptr_null(strchr(e.text, '\n'));
}

/* Nothing is wrong: the rank waits for the others, who do not come. */
static void expect_waiting(const char *backend)
{
    struct err e;
    crun_status s = join_as_rank_1(backend, WAITING_S, &e);

    ck_assert_msg(s == CRUN_TIMEOUT, "%s: %s", crun_status_name(s), e.text);
}

/* -- the map of ranks -------------------------------------------------------------- */

static const struct {
    uint32_t value[SIZE + 40];
    size_t size;
    const char *words;
} maps[] = {
    { { 0, 0 }, 8, "no valid map of 4 ranks" },
    { { 2, 0 }, 8, "no valid map of 4 ranks" },
    { { 0, 2 }, 8, "no valid map of 4 ranks" },
    { { 0 }, 0, "no valid map of 4 ranks" },
    { { 0 }, 3, "no valid map of 4 ranks" },
    { { 0, 1, 1 }, 12, "no valid map of 4 ranks" },
    { { 0, 1, 1, 70000 }, 16, "no valid map of 4 ranks" },
    { { 0, 1, 1, UINT32_MAX }, 16, "no valid map of 4 ranks" },
    { { UINT32_MAX, 0, 0, 0 }, 16, "no valid map of 4 ranks" },
    { { 0 }, 17, "no valid map of 4 ranks" },
    { { 0 }, sizeof(maps[0].value), "there is room for" },
};

FIXTURE(open_store, close_store);

TEST_EACH(a_wrong_map_is_refused, maps)
{
    static const char *const backends[] = { "auto", "shm", "tcp", "shm+tcp" };

    put_value("map", maps[_i].value, maps[_i].size);
    expect_refused(backends[_i % 4], CRUN_MISMATCH, maps[_i].words);
}

/* -- the shared memory ------------------------------------------------------------- */

struct place_in_proc {
    uint64_t nonce[2];
    int64_t pid, fd;
};

static void put_one_node(void)
{
    const uint32_t one_node[2] = { 1, 1 };

    put_value("map", one_node, sizeof(one_node));
}

TEST_LOOP(a_wrong_place_of_shared_memory_is_refused, 0, 7)
{
    const struct place_in_proc places[] = {
        { { 0 }, 0, 0 },
        { { 0 }, -1, 3 },
        { { 0 }, INT64_MIN, INT64_MIN },
        { { 0 }, INT64_MAX, INT64_MAX },
        { { 0 }, getpid(), 0 },
        { { 0 }, getpid(), -7 },
        { { 0 }, 1, 0 },
    };

    put_one_node();
    put_value("shm", &places[_i], sizeof(places[_i]));
    expect_refused("shm", CRUN_SYSTEM, "its shared memory cannot be reached");
}

static const size_t place_sizes[] = { 0, 1, sizeof(struct place_in_proc) - 1,
                                      sizeof(struct place_in_proc) + 1, 4000 };

TEST_EACH(a_place_of_another_size_is_refused, place_sizes)
{
    static const char zeros[4000];
    size_t size = place_sizes[_i];

    put_one_node();
    put_value("shm", zeros, size);
    expect_refused("shm", CRUN_MISMATCH,
                   size > sizeof(struct place_in_proc) ? "there is room for"
                                                       : "no valid address");
}

/* To open a device or a FIFO may have an effect. */
TEST(what_is_no_file_is_not_opened_in_proc)
{
    char folder[] = "/tmp/hostile-store-XXXXXX", path[64], event[256];
    struct place_in_proc place = { .pid = getpid() };
    int watch = inotify_init1(IN_NONBLOCK);

    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/fifo", folder);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    place.fd = open(path, O_RDWR);
    ck_assert_int_ge(place.fd, 0);
    ck_assert_int_ge(inotify_add_watch(watch, path, IN_OPEN), 0);
    put_one_node();
    put_value("shm", &place, sizeof(place));
    expect_refused("shm", CRUN_SYSTEM, "its shared memory cannot be reached");
    ck_assert_int_eq(read(watch, event, sizeof(event)), -1);
    unlink(path);
    rmdir(folder);
    close(watch);
    close((int)place.fd);
}

/* -- the other rank of the same number --------------------------------------------- */

TEST(a_claim_cannot_steer_the_terminal)
{
    struct {
        struct id128 process;
        char text[160];
    } claim = { .text = "process 1 \x1b]0;x\a\xc2\x9b" };

    put_value("rank/1", "1", 1);
    put_value("rank/1/who", &claim, sizeof(claim));
    expect_refused("tcp", CRUN_BAD_ENVIRONMENT, "process 1 \\x1b]0;x\\x07\\xc2\\x9b");
}

/* -- the token and the failure notice ---------------------------------------------- */

static const size_t token_sizes[] = { 0, 15, 17, 4000 };

TEST_EACH(a_token_of_another_size_is_refused, token_sizes)
{
    static const char zeros[4000];

    put_value("token", zeros, token_sizes[_i]);
    if (token_sizes[_i] > 0)
        expect_refused("tcp", CRUN_MISMATCH, "no valid token");
    else /* no value at all: it is drawn */
        expect_waiting("tcp");
}

static const struct {
    struct abort_notice notice;
    size_t size;
} forged[] = {
    { { CRUN_ABORTED, 0, "rank 0: the end" }, sizeof(struct abort_notice) },
    { { CRUN_ABORTED, 0, "rank 0: the end" }, sizeof(struct abort_notice) + 16 },
    { { CRUN_ABORTED, ABORT_OWN, "the end" }, sizeof(struct abort_notice) + 16 },
    { { CRUN_STATUS_COUNT, 0, "the end" }, sizeof(struct abort_notice) + 16 },
    { { CRUN_ABORTED, 0, "the end" }, 1 },
    { { 0 }, 0 },
    { { CRUN_ABORTED, 0, "the end" }, 1000 },
};

TEST_EACH(a_notice_without_the_token_ends_nothing, forged)
{
    char value[1000] = { 0 };

    memcpy(value, &forged[_i].notice, sizeof(forged[_i].notice));
    put_value("failure", value, forged[_i].size);
    expect_waiting("tcp");
}
