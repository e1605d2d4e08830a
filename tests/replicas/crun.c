/* SPDX-License-Identifier: MIT */
#include "tests/replicas/crun.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/client/client.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/records/replica.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/server/server.h"
#include "tests/replicas/watch.h"

#define REPLICAS 3
#define KEEP_US 3000000 /* of a node that has left, as in host_linger.c */

struct job_config replica_job;

static void crun_join(struct crun *c);

/* -- where the rendezvous is ------------------------------------------------------ */

/* The replica of this process, which only its server knows. */
struct replica *__real_replica_create(const struct replica_config *config,
                                      uint64_t now_ms, struct err *e);

struct replica *__wrap_replica_create(const struct replica_config *config,
                                      uint64_t now_ms, struct err *e)
{
    struct replica *r = __real_replica_create(config, now_ms, e);

    machine_now()->crun->replica = r;
    return r;
}

void __real_replica_destroy(struct replica *r);

void __wrap_replica_destroy(struct replica *r)
{
    for (unsigned i = 0; i < sim.count; i++)
        if (sim.machine[i].crun && sim.machine[i].crun->replica == r)
            sim.machine[i].crun->replica = NULL;
    __real_replica_destroy(r);
}

static void list_endpoints(char *list, size_t size)
{
    size_t used = 0;

    for (unsigned i = 0; i < sim.count; i++)
        used += (size_t)snprintf(list + used, size - used, "%s%s:%d", i ? "," : "",
                                 sim.machine[i].address_text, RENDEZVOUS_PORT);
}

static void on_moved(void *arg, bool here)
{
    struct crun *c = arg;
    struct server **from = here ? &c->standby : &c->server;
    struct server **to = here ? &c->server : &c->standby;
    char all[256];

    trace_line(&sim.trace, c->machine->name,
               here ? "hosts the rendezvous now" : "hosts the rendezvous no more");
    if (*from) {
        *to = *from;
        *from = NULL;
    }
    list_endpoints(all, sizeof(all));
    if (here)
        watch_takes_over(c);
    else
        client_leave_server(c->client, all);
}

static void on_elsewhere(void *arg, const char *endpoints)
{
    struct crun *c = arg;

    free(c->elsewhere);
    c->elsewhere = xstrdup(endpoints);
    loop_timer_arm(&c->leave, clock_ms());
}

static void on_leave_timer(void *arg)
{
    struct crun *c = arg;

    trace_line(&sim.trace, c->machine->name, "joins its job at %s", c->elsewhere);
    client_destroy(c->client);
    server_destroy(c->standby);
    server_destroy(c->server);
    c->standby = c->server = NULL;
    crun_join(c);
}

static void on_fatal(void *arg, const char *why)
{
    struct crun *c = arg;

    trace_violation(&sim.trace, "the rendezvous on %s cannot go on: %s",
                    c->machine->name, why);
}

static struct server_config server_config_of(struct crun *c)
{
    return (struct server_config){ .run_id = "job",
                                   .job = &replica_job,
                                   .replicas = REPLICAS,
                                   .conns_max = 1000,
                                   .moved = on_moved,
                                   .fatal = on_fatal,
                                   .arg = c };
}

static void crun_host(struct crun *c)
{
    struct server_config config = server_config_of(c);
    struct err e;

    config.listen = c->machine->address;
    net_set_port(&config.listen, RENDEZVOUS_PORT);
    config.elsewhere = on_elsewhere;
    c->server = server_create(&c->machine->loop, &config, &e);
    if (!c->server)
        abort();
}

static void on_keep(struct crun *c, const struct msg *m)
{
    struct msg answer = { .type = MSG_KEEPING, .keeping = { .id = m->keep.id } };
    struct server_config config = server_config_of(c);
    static char all[256]; /* outlives the server */
    struct err e;

    list_endpoints(all, sizeof(all));
    config.endpoints = all;
    config.standby = (struct server_standby){ .id = m->keep.id,
                                              .election_ms = m->keep.election_ms,
                                              .instance = m->instance,
                                              .node = client_node(c->client),
                                              .host = c->machine->name };
    config.listen = c->machine->address;
    server_destroy(c->standby);
    c->standby = NULL;
    for (int any = 0; any < 2 && !c->standby && !c->server; any++) {
        net_set_port(&config.listen, any ? 0 : RENDEZVOUS_PORT);
        c->standby = server_create(&c->machine->loop, &config, &e);
    }
    if (c->standby)
        answer.keeping.port = net_port(server_address(c->standby));
    client_report(c->client, &answer);
}

/* -- the workers --------------------------------------------------------------------
 */

static void report(struct crun *c, enum msg_type type)
{
    struct msg m = { .type = type, .epoch = c->epoch };

    if (type == MSG_STORE_READY) {
        snprintf(m.store_ready.address, sizeof(m.store_ready.address), "%s",
                 c->machine->address_text);
        m.store_ready.port = 4000;
    } else if (type == MSG_FAILED) {
        m.failed = (struct failure){ .kind = FAILURE_EXIT,
                                     .rank = c->start.first_rank,
                                     .pid = ++c->machine->starts,
                                     .code = 1,
                                     .at_ms = clock_ms(),
                                     .wall_ms = clock_wall_ms() };
        snprintf(m.failed.what, sizeof(m.failed.what), "exit code 1");
    }
    watch_reports(c, &m);
    client_report(c->client, &m);
}

static void on_store_up(void *obj, uint64_t epoch)
{
    struct crun *c = obj;

    if (c->epoch == epoch && c->works)
        report(c, MSG_STORE_READY);
}

static void on_start(struct crun *c, const struct msg *m)
{
    c->epoch = m->epoch;
    c->start = m->start;
    c->works = true;
    watch_starts(c, m);
    if (m->start.host_store)
        machine_after(c->machine, world_between(sim.world, 1000, 50000), on_store_up, c,
                      c->epoch);
}

static void on_workers_gone(void *obj, uint64_t epoch)
{
    struct crun *c = obj;

    if (c->epoch == epoch)
        report(c, MSG_STOPPED);
}

static void on_stop(struct crun *c, const struct msg *m)
{
    if (m->epoch < c->epoch)
        trace_violation(&sim.trace, "%s obeys a STOP of epoch %llu in epoch %llu",
                        c->machine->name, (unsigned long long)m->epoch,
                        (unsigned long long)c->epoch);
    c->epoch = m->epoch;
    c->works = false;
    machine_after(c->machine, world_between(sim.world, 1000, 100000), on_workers_gone,
                  c, c->epoch);
}

static void fail_worker(void *obj, uint64_t token)
{
    struct crun *c = obj;

    c->works = false;
    report(c, MSG_FAILED);
}

bool crun_fail_worker(struct machine *m)
{
    if (!m->crun || m->paused || !m->crun->works)
        return false;
    machine_enter(m, fail_worker, m->crun, 0);
    return true;
}

static void finish_workers(void *obj, uint64_t token)
{
    report(obj, MSG_FINISHED);
}

void crun_finish(struct machine *m)
{
    if (!m->crun || !m->crun->works || m->paused)
        return;
    m->crun->works = false;
    machine_enter(m, finish_workers, m->crun, 0);
}

/* A drain of its node, or a signal to it. One that hosts the rendezvous leaves if
 * others could go on with it. */
static void ask_to_leave(void *obj, uint64_t token)
{
    struct crun *c = obj;
    struct msg m = { .type = MSG_LEAVE,
                     .epoch = c->epoch,
                     .leave = { .exit_code = 143, .reason = "SIGTERM", .now = true } };

    c->leaves = true;
    client_report(c->client, &m);
}

bool crun_leave(struct machine *m)
{
    if (!m->crun || m->paused || !m->crun->works || (m->crun->server && !m->crun->kept))
        return false;
    machine_enter(m, ask_to_leave, m->crun, 0);
    return true;
}

/* -- orders -------------------------------------------------------------------------
 */

/* One that has left ends once the others can do without it. */
static bool crun_is_needed(const struct crun *c)
{
    if (!c->has_left || c->machine->paused)
        return false;
    return c->standby ? server_is_needed(c->standby) &&
                            world_now(sim.world) < c->left_us + KEEP_US
                      : crun_job(c) && crun_job(c)->membership.state != JOB_DONE &&
                            !server_is_kept(c->server);
}

static void end_crun(void *obj, uint64_t again)
{
    struct crun *c = obj;
    struct machine *m = c->machine;

    if (m->crun != c)
        return;
    if (crun_is_needed(c)) {
        world_after(sim.world, 50000, end_crun, c, again);
        return;
    }
    crun_kill(m, false);
    if (again)
        crun_start(m);
}

/* From outside of its own calls: it lingers a little. `again`: a scheduler starts
 * another. */
static void crun_end(struct crun *c, const char *why, bool again)
{
    trace_line(&sim.trace, c->machine->name, "ends: %s", why);
    c->works = false;
    if (c->ending)
        return;
    c->ending = true;
    world_after(sim.world,
                c->has_left ? world_below(sim.world, 100000)
                            : world_between(sim.world, 300000, 1500000),
                end_crun, c, again);
}

static void on_keepers(struct crun *c, const struct msg *m)
{
    c->kept = strchr(m->keepers.hosts, ',') != NULL;
    if (!m->keepers.anew)
        client_set_keepers(c->client, m->keepers.endpoints, m->keepers.safe, false);
    else if (c->epoch == 0)
        on_elsewhere(c, m->keepers.endpoints);
}

static void on_order(void *arg, const struct msg *m)
{
    struct crun *c = arg;

    trace_message(&sim.trace, "order", c->machine->name, m);
    switch ((int)m->type) {
    case MSG_START:
        on_start(c, m);
        break;
    case MSG_STOP:
        on_stop(c, m);
        break;
    case MSG_KEEP:
        on_keep(c, m);
        break;
    case MSG_KEEPERS:
        on_keepers(c, m);
        break;
    case MSG_DONE:
        watch_is_done(c, m);
        c->has_left = m->done.reason == JOB_REASON_RELEASED;
        c->left_us = world_now(sim.world);
        if (!c->has_left) {
            server_destroy(c->standby);
            c->standby = NULL;
        }
        crun_end(c, "done", c->has_left);
        break;
    case MSG_REFUSED:
        crun_end(c, m->refused.text, true);
        break;
    }
}

static void on_outage(void *arg, bool out, const char *why)
{
    struct crun *c = arg;

    trace_line(&sim.trace, c->machine->name, "%s %s", out ? "outage:" : "it is back",
               why);
}

static void on_abandoned(void *arg, const char *why)
{
    watch_abandons(arg, why);
    crun_end(arg, why, true);
}

/* -- life -----------------------------------------------------------------------------
 */

static void crun_join(struct crun *c)
{
    static const struct client_calls none;
    struct client_calls calls = none;
    struct client_config cc = { .of_one = c->elsewhere != NULL, .local = c->server };
    struct msg_join *j = &cc.session.join;
    char all[256];
    struct err e;

    calls.order = on_order;
    calls.outage = on_outage;
    calls.abandoned = on_abandoned;
    calls.arg = c;
    list_endpoints(all, sizeof(all));
    cc.endpoints = c->elsewhere ? c->elsewhere : c->server ? NULL : all;
    snprintf(j->run_id, sizeof(j->run_id), "job");
    snprintf(j->host, sizeof(j->host), "%s", c->machine->name);
    snprintf(j->containment, sizeof(j->containment), "session");
    j->incarnation = c->incarnation = world_id(sim.world);
    j->pid = ++c->machine->starts;
    j->workers = 2;
    j->node_rank = -1;
    j->config = replica_job;
    cc.session.connect_for_ms = 3600000;
    cc.session.outage_grace_ms = 40 * replica_job.lease_ms;
    cc.session.strict_fence = replica_job.strict_fence;
    cc.session.seed = world_random(sim.world);
    cc.session.software = "sim";
    c->client = client_create(&c->machine->loop, &cc, &calls, &e);
    if (!c->client)
        abort();
}

static void begin_crun(void *obj, uint64_t token)
{
    struct crun *c = obj;

    loop_timer_init(&c->leave, &c->machine->loop, on_leave_timer, c);
    if (c->machine->number == 0)
        crun_host(c);
    crun_join(c);
}

void crun_start(struct machine *m)
{
    struct crun *c;

    if (m->crun || m->off)
        return;
    trace_line(&sim.trace, m->name, "begins");
    c = world_alloc(sim.world, sizeof(*c));
    c->machine = m;
    m->crun = c;
    machine_enter(m, begin_crun, c, 0);
}

static void crun_free(struct crun *c)
{
    client_destroy(c->client);
    server_destroy(c->standby);
    server_destroy(c->server);
    free(c->elsewhere);
}

void crun_kill(struct machine *m, bool quiet)
{
    machine_kill(m, quiet, crun_free);
}

const struct job *crun_job(const struct crun *c)
{
    return c && c->server && server_serves(c->server)
               ? registry_jobs(server_registry(c->server))
               : NULL;
}

bool crun_is_attached(const struct crun *c)
{
    return c && session_state(client_session(c->client)) == SESSION_ATTACHED;
}
