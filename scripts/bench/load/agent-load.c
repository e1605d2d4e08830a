/* SPDX-License-Identifier: MIT */
/*
 * Many agents in one process, each with its own connection and the same client code as
 * a real agent: they join one job, get ranks, fail as often as the flags say, finish,
 * and receive the result. All messages to them are checked, so that this is also the
 * load under which a daemon is killed and restarted.
 */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "launcher/flags/limits.h"
#include "rendezvous/client/client.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/opt.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/key_ring.h"
#include "rendezvous/wire/net/conn.h"
#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/proto.h"

#define WORKERS 8
#define STORE_PORT 29500
#define STEPS_PER_S 10.0
#define STEPS 1000000

struct options {
    const char *endpoint, *run_id, *hold, *key_file;
    long long agents, rounds, failures;
    uint64_t lease_ms, limit_ms;
    bool progress, verbose, help;
};

struct load;

struct agent {
    struct load *load;
    struct client *client;
    struct conn *conn; /* instead of a client: --hold connections */
    uint64_t epoch;
    uint64_t beat_us; /* when the last heartbeat left; 0: it is answered */
};

#define BEATS_MAX 1000000

struct load {
    struct options o;
    struct loop *loop;
    struct loop_timer limit;
    struct agent *agent;
    struct key_ring *keys; /* NULL: plain */
    uint32_t *beat_us;     /* what each answer to a heartbeat took */
    size_t beats;
    uint8_t *rank_taken; /* by group rank, in this epoch */
    long long round, started, done, greeted, failures_left;
    uint64_t epoch;
    uint64_t begun_us, started_us; /* the last START of the first epoch */
    uint64_t messages;
    size_t largest;
    enum msg_type largest_type;
    bool failed;
};

static void begin_round(struct load *l);

__attribute__((format(printf, 2, 3))) static void complain(struct load *l,
                                                           const char *fmt, ...)
{
    va_list ap;

    if (l->failed) /* only the first counts */
        return;
    fprintf(stderr, "agent-load: ");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    l->failed = true;
    loop_stop(l->loop);
}

static void report(struct agent *a, const struct msg *m)
{
    client_report(a->client, m);
}

static void report_plain(struct agent *a, enum msg_type type)
{
    struct msg m = { .type = type, .epoch = a->epoch };

    report(a, &m);
}

static void report_store(struct agent *a)
{
    struct msg m = { .type = MSG_STORE_READY, .epoch = a->epoch };

    m.store_ready.port = STORE_PORT;
    report(a, &m);
}

static void report_failure(struct agent *a)
{
    struct msg m = { .type = MSG_FAILED, .epoch = a->epoch };

    m.failed.kind = FAILURE_EXIT;
    m.failed.code = 1;
    m.failed.at_ms = clock_ms();
    snprintf(m.failed.what, sizeof(m.failed.what), "told to fail");
    report(a, &m);
}

/* -- a round ---------------------------------------------------------------------- */

/* Heartbeats count from now on. */
static void say_ready(struct load *l)
{
    l->beats = 0;
    puts("ready");
    fflush(stdout);
}

static void on_all_started(struct load *l)
{
    if (!l->started_us)
        l->started_us = clock_us();
    if (l->failures_left > 0) {
        l->failures_left--;
        report_failure(&l->agent[rand() % l->o.agents]);
    } else if (l->o.hold) {
        say_ready(l);
    } else {
        for (long long i = 0; i < l->o.agents; i++)
            report_plain(&l->agent[i], MSG_FINISHED);
    }
}

static void check_start(struct load *l, struct agent *a, const struct msg *m)
{
    const struct msg_start *s = &m->start;

    if (m->epoch <= a->epoch)
        complain(l, "START of epoch %" PRIu64 " after epoch %" PRIu64, m->epoch,
                 a->epoch);
    if (s->group_size != l->o.agents || s->world_size != l->o.agents * WORKERS)
        complain(l, "START with %" PRIu32 " nodes, %" PRIu32 " workers", s->group_size,
                 s->world_size);
    else if (s->group_rank >= s->group_size || l->rank_taken[s->group_rank]++)
        complain(l, "group rank %" PRIu32 " twice in epoch %" PRIu64, s->group_rank,
                 m->epoch);
    if (s->restarts != l->o.failures - l->failures_left)
        complain(l, "%" PRIu32 " restarts spent after %lld failures", s->restarts,
                 l->o.failures - l->failures_left);
}

static void on_start(struct load *l, struct agent *a, const struct msg *m)
{
    if (m->epoch > l->epoch) {
        l->epoch = m->epoch;
        l->started = 0;
        memset(l->rank_taken, 0, (size_t)l->o.agents);
    }
    check_start(l, a, m);
    a->epoch = m->epoch;
    if (m->start.host_store)
        report_store(a);
    if (++l->started == l->o.agents)
        on_all_started(l);
}

static void print_round(const struct load *l)
{
    uint64_t now = clock_us();

    printf("agents=%lld start_ms=%.1f finish_ms=%.1f epochs=%" PRIu64
           " messages=%" PRIu64 " largest=%zu:%s\n",
           l->o.agents, (double)(l->started_us - l->begun_us) / 1e3,
           (double)(now - l->started_us) / 1e3, l->epoch, l->messages, l->largest,
           l->largest_type ? proto_name(l->largest_type) : "none");
    fflush(stdout);
}

static void end_agents(struct load *l)
{
    for (long long i = 0; i < l->o.agents; i++) {
        client_destroy(l->agent[i].client);
        conn_destroy(l->agent[i].conn);
        l->agent[i].client = NULL;
        l->agent[i].conn = NULL;
    }
}

static void next_round(void *arg)
{
    struct load *l = arg;

    end_agents(l);
    if (++l->round == l->o.rounds)
        loop_stop(l->loop);
    else
        begin_round(l);
}

static void on_done(struct load *l, struct agent *a, const struct msg *m)
{
    if (m->done.reason != JOB_REASON_SUCCESS)
        complain(l, "the job ended with %s: %s", proto_reason_name(m->done.reason),
                 m->done.text);
    client_bye(a->client);
    if (++l->done < l->o.agents)
        return;
    print_round(l);
    loop_defer(l->loop, next_round, l);
}

/* -- an agent --------------------------------------------------------------------- */

static void on_order(void *arg, const struct msg *m)
{
    struct agent *a = arg;

    switch (m->type) {
    case MSG_START:
        on_start(a->load, a, m);
        break;
    case MSG_STOP:
        a->epoch = m->epoch;
        report_plain(a, MSG_STOPPED);
        break;
    case MSG_DONE:
        on_done(a->load, a, m);
        break;
    case MSG_REFUSED:
        complain(a->load, "agent %td refused: %s", a - a->load->agent, m->refused.text);
        break;
    default:
        break;
    }
}

static void on_outage(void *arg, bool out, const char *why)
{
    struct agent *a = arg;

    if (a->load->o.verbose)
        fprintf(stderr, "agent-load: agent %td %s: %s\n", a - a->load->agent,
                out ? "cut off" : "back", why);
}

static void on_abandoned(void *arg, const char *why)
{
    struct agent *a = arg;

    complain(a->load, "agent %td gives up: %s", a - a->load->agent, why);
}

/* What a training of STEPS steps would tell, 10 of them in a second, on eight GPUs;
 * every 100th node is slow. */
static void train(const struct load *l, long long node, struct msg_heartbeat *progress)
{
    double seconds = (double)(clock_us() - l->begun_us) / 1e6;
    bool slow = node % 100 == 7;

    progress->step = (uint64_t)(seconds * STEPS_PER_S) + 1;
    progress->steps = STEPS;
    progress->first_step = 1;
    progress->first_ms = (uint32_t)(seconds * 1e3);
    progress->busy = slow ? 900 : 500;
    progress->usual_busy = 500;
    progress->checkpoint_ms = (uint32_t)((uint64_t)(seconds * 1e3) % 60000);
    snprintf(progress->steps_per_s, sizeof(progress->steps_per_s), "%.1f",
             STEPS_PER_S + 0.1 * sin(seconds));
    snprintf(progress->loss, sizeof(progress->loss), "%.4g",
             2 + 8 / (1 + seconds / 10) + 0.1 * sin(seconds * 3));
    progress->gpus = (struct msg_gpus){ .count = WORKERS,
                                        .percent = slow ? 99 : 85,
                                        .used_mib = 61000,
                                        .total_mib = 81559,
                                        .celsius = 71,
                                        .watts = 5200,
                                        .each = "0:85 1:86 2:84 3:99 4:85 5:7 6:- "
                                                "7:85" };
}

/* Right before a heartbeat. */
static void on_progress(void *arg, struct msg_heartbeat *progress)
{
    struct agent *a = arg;

    if (a->load->o.progress)
        train(a->load, a - a->load->agent, progress);
    a->beat_us = clock_us();
}

static void on_heard(void *arg, const struct msg *m)
{
    static uint8_t frame[FRAME_HEADER_SIZE + FRAME_BODY_MAX];
    struct agent *a = arg;
    struct load *l = a->load;
    size_t size = proto_encode(m, frame, sizeof(frame));

    if (m->type == MSG_BEAT && a->beat_us && l->beats < BEATS_MAX)
        l->beat_us[l->beats++] = (uint32_t)(clock_us() - a->beat_us);
    a->beat_us = 0;
    l->messages++;
    if (size <= l->largest)
        return;
    l->largest = size;
    l->largest_type = m->type;
}

static struct session_config session_config(const struct load *l, long long i)
{
    struct session_config c = {
        .connect_for_ms = (uint32_t)l->o.limit_ms,
        .outage_grace_ms = (uint32_t)l->o.limit_ms,
        .seed = (uint64_t)i,
        .software = "agent-load",
    };
    struct job_config *job = &c.join.config;
    uint32_t agents = (uint32_t)l->o.agents;

    snprintf(c.join.run_id, sizeof(c.join.run_id), "%s-%lld", l->o.run_id, l->round);
    snprintf(c.join.host, sizeof(c.join.host), "node-%05lld", i);
    snprintf(c.join.address, sizeof(c.join.address), "10.%lld.%lld.%lld", i >> 16,
             i >> 8 & 255, i & 255);
    c.join.incarnation = id128_random();
    c.join.pid = (uint32_t)i + 1;
    c.join.workers = WORKERS;
    c.join.node_rank = -1;
    *job = (struct job_config){ .min_nodes = agents,
                                .max_nodes = agents,
                                .max_restarts = (uint32_t)l->o.failures,
                                .lease_ms = (uint32_t)l->o.lease_ms,
                                .join_timeout_ms = JOIN_TIMEOUT_MS_DEFAULT,
                                .last_call_ms = LAST_CALL_MS_DEFAULT,
                                .shutdown_grace_ms = SHUTDOWN_GRACE_MS_DEFAULT,
                                .failure_grace_ms = FAILURE_GRACE_MS_DEFAULT,
                                .scale = JOB_SCALE_NOW,
                                .program = "train.py" };
    return c;
}

static void begin_agent(struct load *l, long long i)
{
    struct client_config config = { .session = session_config(l, i),
                                    .endpoints = l->o.endpoint,
                                    .keys = l->keys };
    struct agent *a = &l->agent[i];
    struct client_calls calls = { .order = on_order,
                                  .outage = on_outage,
                                  .abandoned = on_abandoned,
                                  .progress = l->o.hold ? on_progress : NULL,
                                  .heard = on_heard,
                                  .arg = a };
    struct err e;

    *a = (struct agent){ .load = l };
    a->client = client_create(l->loop, &config, &calls, &e);
    if (!a->client)
        complain(l, "%s", e.text);
}

static void begin_round(struct load *l)
{
    l->started = l->done = 0;
    l->epoch = l->messages = l->largest = l->started_us = 0;
    l->failures_left = l->o.failures;
    l->begun_us = clock_us();
    for (long long i = 0; i < l->o.agents && !l->failed; i++)
        begin_agent(l, i);
}

/* -- connections without a job ---------------------------------------------------- */

static int on_welcome(void *arg, struct conn *c, const struct msg *m, struct err *e)
{
    struct agent *a = arg;

    (void)c;
    (void)e;
    if (m->type != MSG_WELCOME)
        complain(a->load, "%s instead of WELCOME", proto_name(m->type));
    if (++a->load->greeted == a->load->o.agents)
        say_ready(a->load);
    return 0;
}

static uint32_t on_body_max(void *arg, struct conn *c)
{
    (void)arg;
    (void)c;
    return FRAME_BODY_MAX;
}

static void on_closed(void *arg, struct conn *c, const char *why)
{
    struct agent *a = arg;

    (void)c;
    a->conn = NULL;
    complain(a->load, "connection %td closed: %s", a - a->load->agent, why);
}

static void on_connected(void *arg, struct conn *c)
{
    struct msg m = { .type = MSG_HELLO,
                     .hello = { .version_min = PROTO_VERSION_MIN,
                                .version_max = PROTO_VERSION_MAX,
                                .role = PEER_CTL,
                                .software = "agent-load" } };

    (void)arg;
    conn_send(c, &m);
    conn_flush(c);
}

static int resolve(const char *endpoint, struct net_addr *addr, struct err *e)
{
    char host[HOST_NAME_MAX_BYTES + 1];
    uint16_t port;
    size_t count;

    if (net_split(endpoint, -1, host, sizeof(host), &port, e) < 0)
        return -1;
    return net_resolve(host, port, addr, 1, &count, e);
}

static void open_connections(struct load *l)
{
    struct conn_calls calls = { .message = on_welcome,
                                .body_max = on_body_max,
                                .closed = on_closed };
    struct net_addr addr;
    struct err e;

    if (resolve(l->o.endpoint, &addr, &e) < 0) {
        complain(l, "%s", e.text);
        return;
    }
    for (long long i = 0; i < l->o.agents && !l->failed; i++) {
        l->agent[i].load = l;
        calls.arg = &l->agent[i];
        l->agent[i].conn = conn_connect(l->loop, &addr, NULL, on_connected, &calls, &e);
        if (!l->agent[i].conn)
            complain(l, "%s", e.text);
    }
}

/* -- the whole -------------------------------------------------------------------- */

static void on_limit(void *arg)
{
    struct load *l = arg;

    if (!l->o.hold)
        complain(l, "not done in time: %lld started, %lld done in epoch %" PRIu64,
                 l->started, l->done, l->epoch);
}

static void on_signal(void *arg, int signo)
{
    struct load *l = arg;

    (void)signo;
    loop_stop(l->loop);
}

static int set_hold(void *target, const struct opt *opt, const char *value,
                    struct err *e)
{
    if (strcmp(value, "agents") != 0 && strcmp(value, "connections") != 0)
        return err_set(e, "--%s: \"%s\" is not agents or connections", opt->name,
                       value);
    return opt_set_text(target, opt, value, e);
}

static const struct opt table[] = {
    { .name = "endpoint",
      .arg = "HOST:PORT",
      .help = "The rendezvous. Several, with commas, are tried in turn.",
      .set = opt_set_text,
      .offset = offsetof(struct options, endpoint) },
    { .name = "agents",
      .arg = "N",
      .help = "How many. Default: 10.",
      .set = opt_set_int,
      .offset = offsetof(struct options, agents),
      .min = 1,
      .max = NODES_MAX },
    { .name = "rounds",
      .arg = "N",
      .help = "How many jobs, one after another. Default: 1.",
      .set = opt_set_int,
      .offset = offsetof(struct options, rounds),
      .min = 1,
      .max = 1000000 },
    { .name = "failures",
      .arg = "N",
      .help = "How often one of them fails before a job finishes. Default: 0.",
      .set = opt_set_int,
      .offset = offsetof(struct options, failures),
      .min = 0,
      .max = RESTARTS_MAX },
    { .name = "run-id",
      .arg = "ID",
      .help = "The jobs are ID-0, ID-1, ... Default: load.",
      .set = opt_set_text,
      .offset = offsetof(struct options, run_id) },
    { .name = "hold",
      .arg = "agents|connections",
      .help = "Instead of finishing, hold until a signal arrives: agents of a running "
              "job, after its failures, or connections that have only sent HELLO. "
              "Prints \"ready\", and at "
              "the end how fast heartbeats were answered.",
      .set = set_hold,
      .offset = offsetof(struct options, hold) },
    { .name = "progress",
      .help = "With --hold agents: heartbeats tell steps, a rate, a loss and GPUs.",
      .set = opt_set_true,
      .offset = offsetof(struct options, progress) },
    { .name = "key-file",
      .arg = "FILE",
      .help = "The key to show. Default: none.",
      .set = opt_set_text,
      .offset = offsetof(struct options, key_file) },
    { .name = "lease",
      .arg = "SECONDS",
      .help = "Default: 15.",
      .set = opt_set_seconds,
      .offset = offsetof(struct options, lease_ms),
      .min = LEASE_MS_MIN,
      .max = LEASE_MS_MAX },
    { .name = "limit",
      .arg = "SECONDS",
      .help = "Fail if it takes longer. Default: 120.",
      .set = opt_set_seconds,
      .offset = offsetof(struct options, limit_ms),
      .min = 1,
      .max = 86400000 },
    { .name = "verbose",
      .letter = 'v',
      .help = "Print each closed connection.",
      .set = opt_set_true,
      .offset = offsetof(struct options, verbose) },
    OPT_HELP(struct options),
    { .name = NULL }
};

static void raise_file_limit(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return;
    files.rlim_cur = files.rlim_max;
    (void)!setrlimit(RLIMIT_NOFILE, &files);
}

static int compare_beats(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static void print_beats(struct load *l)
{
    if (l->beats == 0)
        return;
    qsort(l->beat_us, l->beats, sizeof(*l->beat_us), compare_beats);
    printf("heartbeats=%zu p50_ms=%.1f p99_ms=%.1f worst_ms=%.1f\n", l->beats,
           l->beat_us[l->beats / 2] / 1e3, l->beat_us[l->beats * 99 / 100] / 1e3,
           l->beat_us[l->beats - 1] / 1e3);
}

static int run(const struct options *o)
{
    struct load l = { .o = *o, .loop = loop_create() };
    struct err e;

    if (o->key_file && !(l.keys = key_ring_open(o->key_file, &e))) {
        fprintf(stderr, "agent-load: %s\n", e.text);
        loop_destroy(l.loop);
        return EXIT_FAILURE;
    }
    l.beat_us = xcalloc(BEATS_MAX, sizeof(*l.beat_us));
    l.agent = xcalloc((size_t)o->agents, sizeof(*l.agent));
    l.rank_taken = xcalloc((size_t)o->agents, 1);
    loop_on_signal(l.loop, SIGTERM, on_signal, &l);
    loop_on_signal(l.loop, SIGINT, on_signal, &l);
    loop_timer_init(&l.limit, l.loop, on_limit, &l);
    loop_timer_arm(&l.limit, clock_ms() + o->limit_ms);
    if (o->hold && strcmp(o->hold, "connections") == 0)
        open_connections(&l);
    else
        begin_round(&l);
    if (!l.failed)
        loop_run(l.loop);
    print_beats(&l);
    end_agents(&l);
    loop_timer_fini(&l.limit);
    loop_destroy(l.loop);
    key_ring_close(l.keys);
    free(l.beat_us);
    free(l.agent);
    free(l.rank_taken);
    return l.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    const struct opt_rules rules = { .table = table };
    struct options o = { .agents = 10,
                         .rounds = 1,
                         .run_id = "load",
                         .lease_ms = 15000,
                         .limit_ms = 120000 };
    struct err e;
    int word;

    if (opt_parse(&rules, argc, argv, &o, &word, &e) < 0) {
        fprintf(stderr, "agent-load: %s\n", e.text);
        return 2;
    }
    if (o.help) {
        printf("usage: agent-load --endpoint HOST:PORT [flags]\n\n");
        opt_print(table, stdout);
        return 0;
    }
    if (!o.endpoint || word < argc) {
        fprintf(stderr, "agent-load: %s\n",
                o.endpoint ? "it takes flags only" : "--endpoint is missing");
        return 2;
    }
    raise_file_limit();
    return run(&o);
}
