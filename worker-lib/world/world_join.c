/* SPDX-License-Identifier: MIT */
/* Joins the ranks at the store, which the launcher or rank 0 serves. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/id128.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/tcpstore/store_server.h"
#include "worker-lib/world/world_internal.h"

#define TRY_MS_MIN 20 /* for one port, before the next is tried */
#define TRY_MS_MAX 1000
#define ADDRESSES_MAX 8
#define LEAVE_MS 5000
#define GONE_MS 100 /* between checks whether ranks have left silently */
#define TELL_MS 500
#define LINGER_MS 2000
#define LOOK_GONE_MS 5
#define CLAIM_SIZE 160
#define CLAIM_MS 2000 /* between its number and its name in the store */

/* -- the server -------------------------------------------------------------------- */

/* Listens on the named address if this machine has it. Otherwise the address is
 * forwarded to this machine: listens on all addresses. */
static int find_listen(const char *host, uint16_t port, struct net_addr *addr,
                       struct err *e)
{
    struct net_addr list[ADDRESSES_MAX];
    size_t count = 0;

    if (net_resolve(host, port, list, ADDRESSES_MAX, &count, e) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (net_is_local(&list[i])) {
            *addr = list[i];
            return 0;
        }
    return net_resolve("", port, addr, 1, &count, e);
}

/* A library does not write to its program's standard error. */
static void discard_log_line(void *arg, enum log_level level, const char *line)
{
}

static int serve_world(crun_world *w, uint16_t port, struct err *e)
{
    struct net_addr addr;

    log_set_sink(discard_log_line, NULL);

    if (find_listen(w->env.host, port, &addr, e) < 0)
        return -1;
    w->server = store_server_create(
        &(struct store_server_config){ .listen = &addr,
                                       .open = !net_is_loopback(&addr) },
        e);
    return w->server ? 0 : -1;
}

/* -- meeting ----------------------------------------------------------------------- */

static void job_key(const crun_world *w, char *key, size_t size)
{
    snprintf(key, size, "%shere", w->prefix);
}

static crun_status connect_fixed(crun_world *w, struct err *e)
{
    struct err refused;

    /* if the port is taken, another process serves already, or the connection fails */
    if (w->env.rank == 0 && !w->env.agent_store)
        (void)!serve_world(w, w->env.port, &refused);
    return store_client_open_job(&w->store, &w->env, w->init_deadline_ms, e);
}

static crun_status serve_somewhere(crun_world *w, struct err *e)
{
    char key[sizeof(w->prefix) + 8];
    crun_status s;

    for (unsigned turn = 0; turn < ENVIRONMENT_PORTS && w->env.port == 0; turn++)
        if (serve_world(w, environment_port(&w->env, turn), e) == 0)
            w->env.port = store_server_port(w->server);
    if (w->env.port == 0)
        return CRUN_SYSTEM;
    s = store_client_open(&w->store, w->env.host, w->env.port, w->init_deadline_ms, e);
    job_key(w, key, sizeof(key));
    return s == CRUN_OK ? store_client_set(w->store, key, "", 0, w->init_deadline_ms, e)
                        : s;
}

/* Rank 0 is at one of the ports; another job's may be at another of them. */
static crun_status look_for_rank_0(crun_world *w, struct err *e)
{
    uint64_t pause_ms = TRY_MS_MIN;
    char key[sizeof(w->prefix) + 8];
    struct err last;

    job_key(w, key, sizeof(key));
    for (unsigned turn = 0; clock_ms() < w->init_deadline_ms; turn++) {
        uint16_t port = environment_port(&w->env, turn);
        uint64_t until = clock_ms() + pause_ms;

        if (store_client_open(&w->store, w->env.host, port, until, &last) == CRUN_OK &&
            store_client_has(w->store, key, until) == 1)
            return CRUN_OK;
        store_client_close(w->store);
        w->store = NULL;
        /* more often the first ports, where it is likely to be */
        if (turn % ENVIRONMENT_PORTS == ENVIRONMENT_PORTS - 1 && pause_ms < TRY_MS_MAX)
            pause_ms *= 2;
    }
    err_set(e, "rank 0 of job %s was not found at %s, ports %u and others: %s",
            w->env.job, w->env.host, environment_port(&w->env, 0), last.text);
    return CRUN_TIMEOUT;
}

/* Identifies a process, also among those with the same pid on other hosts. */
struct claim {
    struct id128 process;
    char text[CLAIM_SIZE];
};

static struct id128 this_process;

static void name_process(void)
{
    this_process = id128_random();
}

static struct claim own_claim(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct claim c = { 0 };
    char host[CLAIM_SIZE / 2] = "";

    pthread_once(&once, name_process);
    c.process = this_process;
    gethostname(host, sizeof(host) - 1);
    snprintf(c.text, sizeof(c.text), "process %d on %s", (int)getpid(), host);
    return c;
}

/* The same process may try again after it has corrected an error in its environment. */
static crun_status number_is_taken(crun_world *w, const char *key, struct err *e)
{
    uint64_t until = clock_ms() + CLAIM_MS;
    struct claim mine = own_claim(), its;
    char shown[2 * CLAIM_SIZE];
    size_t size = sizeof(its);

    if (until > w->init_deadline_ms)
        until = w->init_deadline_ms;
    if (store_client_get(w->store, key, &its, &size, until, e) != CRUN_OK ||
        size != sizeof(its))
        snprintf(its.text, sizeof(its.text), "a process");
    else if (id128_equal(&its.process, &mine.process))
        return CRUN_OK;
    its.text[sizeof(its.text) - 1] = '\0';
    err_set(e,
            "there is another rank %u, %s: every rank needs a number of its own, "
            "and every job a MASTER_PORT",
            w->env.rank, text_printable(its.text, shown, sizeof(shown)));
    return CRUN_BAD_ENVIRONMENT;
}

/* Two processes with one rank number would make the second, and all other ranks, wait
 * for a rank that does not exist. */
static crun_status claim_number(crun_world *w, struct err *e)
{
    char count[sizeof(w->prefix) + 24], who[sizeof(w->prefix) + 24];
    struct claim mine = own_claim();
    int64_t sum = 0;
    crun_status s;

    snprintf(count, sizeof(count), "%srank/%u", w->prefix, w->env.rank);
    snprintf(who, sizeof(who), "%srank/%u/who", w->prefix, w->env.rank);
    s = store_client_add(w->store, count, 1, &sum, w->init_deadline_ms, e);
    if (s != CRUN_OK)
        return s;
    if (sum > 1)
        return number_is_taken(w, who, e);
    return store_client_set(w->store, who, &mine, sizeof(mine), w->init_deadline_ms, e);
}

/* By it ranks recognize each other. The first rank that comes draws it. */
static crun_status agree_on_token(crun_world *w, struct err *e)
{
    struct id128 token = id128_random();
    size_t size = sizeof(token);
    char key[sizeof(w->prefix) + 8];
    crun_status s;

    snprintf(key, sizeof(key), "%stoken", w->prefix);
    s = store_client_agree(w->store, key, &token, &size, w->init_deadline_ms, e);
    if (s == CRUN_BAD_ARGUMENT || (s == CRUN_OK && size != sizeof(token))) {
        err_set(e, "the store has no valid token of job %s", w->env.job);
        return CRUN_MISMATCH;
    }
    if (s == CRUN_OK)
        w->board = (struct notice_board){ w->store, w->prefix, token };
    return s;
}

crun_status world_meet(crun_world *w, struct err *e)
{
    char key[sizeof(w->prefix) + 8];
    int64_t came;
    crun_status s;

    snprintf(w->prefix, sizeof(w->prefix), "crun/%s/", w->env.job);
    if (w->env.port)
        s = connect_fixed(w, e);
    else
        s = w->env.rank == 0 ? serve_somewhere(w, e) : look_for_rank_0(w, e);
    if (s == CRUN_OK)
        s = agree_on_token(w, e);
    if (s == CRUN_OK && !w->env.agent_store) {
        snprintf(key, sizeof(key), "%scame", w->prefix);
        s = store_client_add(w->store, key, 1, &came, w->init_deadline_ms, e);
    }
    return s == CRUN_OK ? claim_number(w, e) : s;
}

/* The last rank sets the key "gone". False: the store did not accept it. */
static bool say_left(crun_world *w, char *gone_key, size_t size, uint64_t until)
{
    char key[sizeof(w->prefix) + 8];
    int64_t left = 0;
    struct err e;

    snprintf(key, sizeof(key), "%sleft", w->prefix);
    snprintf(gone_key, size, "%sgone", w->prefix);
    if (store_client_add(w->store, key, 1, &left, until, &e) != CRUN_OK)
        return false;
    return left < (int64_t)w->env.size ||
           store_client_set(w->store, gone_key, "", 0, until, &e) == CRUN_OK;
}

/* No other process is connected, and none will still connect. */
static bool others_have_left(crun_world *w)
{
    char key[sizeof(w->prefix) + 8];
    int64_t came = 0;
    struct err e;

    if (store_server_stats(w->server).connections > 1)
        return false;
    snprintf(key, sizeof(key), "%scame", w->prefix);
    return store_client_add(w->store, key, 0, &came, clock_ms() + TELL_MS, &e) ==
               CRUN_OK &&
           came == (int64_t)w->env.size;
}

/* After a good end the ranks count themselves out; a rank that fails or dies only
 * disconnects. */
static void await_goodbyes(crun_world *w, const char *gone_key, uint64_t until)
{
    crun_status s = CRUN_TIMEOUT;

    while (s == CRUN_TIMEOUT && clock_ms() < until && !others_have_left(w)) {
        size_t size = 0;
        struct err e;

        s = store_client_get(w->store, gone_key, NULL, &size, clock_ms() + GONE_MS, &e);
    }
}

/* After a failure other ranks may still have to read the reason. */
static void linger_after_failure(crun_world *w)
{
    uint64_t until = clock_ms() + LINGER_MS;

    while (clock_ms() < until && !others_have_left(w))
        usleep(LOOK_GONE_MS * 1000);
}

/* The store must live until the last rank has left. */
void world_leave(crun_world *w)
{
    uint64_t until = clock_ms() + LEAVE_MS;
    char gone_key[sizeof(w->prefix) + 8];
    bool good = w->store && !w->env.agent_store &&
                abort_get(&w->family->aborted) == CRUN_OK &&
                say_left(w, gone_key, sizeof(gone_key), until);

    if (w->server && good)
        await_goodbyes(w, gone_key, until);
    else if (w->server && w->store)
        linger_after_failure(w);
    store_client_close(w->store);
    store_server_destroy(w->server);
}
