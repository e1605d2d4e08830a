/* SPDX-License-Identifier: MIT */
#include "tests/sim/daemon.h"

#include <string.h>

#include "rendezvous/job/events/event_kinds.h"
#include "rendezvous/job/records/journal_format.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/registry/registry.h"
#include "tests/fakes/disk/memdisk.h"
#include "tests/sim/agent.h"
#include "tests/sim/oracle.h"
#include "tests/sim/sim.h"

#define RESTART_AGAIN_US 50000
#define TORN_BYTES_MAX 3000

struct daemon_conn {
    struct sim_daemon *daemon;
    struct sim_link *link;
    struct registry_peer *peer; /* NULL: it is gone */
    bool hung_up;
};

struct sim_daemon {
    struct sim *sim;
    struct machine_clock clock;
    struct registry *registry; /* NULL: it is down */
    struct memdisk *disk;      /* NULL: embedded */
    bool paused, dying, starting;
    bool rebooted;
    bool disk_fails; /* the next sync */
    uint8_t *backup; /* of its journal; NULL: none */
    size_t backup_size;
    uint64_t paused_at_ms, slept_ms;
    uint64_t tick_at_us, turn_at_us;
    struct sim_parcel *outbox, **outbox_last;
    unsigned crash_operation;
    bool crash_in_commit;
    uint64_t restart_us;
};

static uint64_t now_ms(const struct sim_daemon *d)
{
    return machine_clock_ms(&d->clock, d->sim->world);
}

static uint64_t wall_ms(const struct sim_daemon *d)
{
    return machine_clock_wall_ms(&d->clock, d->sim->world);
}

/* -- turns ------------------------------------------------------------------ */

static void post_all(struct sim_daemon *d)
{
    struct sim_parcel *p = d->outbox;

    d->outbox = NULL;
    d->outbox_last = &d->outbox;
    while (p) {
        struct sim_parcel *next = parcel_next(p);

        parcel_post(p);
        p = next;
    }
}

static void hold_parcel(struct sim_daemon *d, struct sim_parcel *p)
{
    *d->outbox_last = p;
    d->outbox_last = parcel_link(p);
}

static void commit_turn(struct sim_daemon *d)
{
    struct err e;

    if (d->crash_in_commit && d->crash_operation > 0)
        memdisk_cut_power_after(d->disk, d->crash_operation - 1);
    if (registry_commit(d->registry, &e) < 0) {
        trace_line(&d->sim->trace, "daemon", "commit: %s", e.text);
        oracle_commit_unknown(d->sim->oracle);
        daemon_crash(d, d->crash_in_commit, d->restart_us);
        return;
    }
    oracle_committed(d->sim->oracle);
    if (d->crash_in_commit && d->crash_operation == 0) {
        daemon_crash(d, true, d->restart_us);
        return;
    }
    post_all(d);
}

static void on_tick(void *obj, uint64_t token);

static void commit_and_tick(struct sim_daemon *d)
{
    uint64_t next_ms, delay_us;

    d->turn_at_us = 0;
    next_ms = registry_tick(d->registry, now_ms(d), wall_ms(d));
    commit_turn(d);
    if (!d->registry || next_ms == UINT64_MAX)
        return;
    delay_us = machine_clock_until_us(&d->clock, d->sim->world, next_ms) +
               world_below(d->sim->world, 1000);
    if (world_now(d->sim->world) + delay_us >= d->tick_at_us)
        return;
    d->tick_at_us = world_now(d->sim->world) + delay_us;
    world_after(d->sim->world, delay_us, on_tick, d, d->tick_at_us);
}

static void on_tick(void *obj, uint64_t token)
{
    struct sim_daemon *d = obj;

    if (token != d->tick_at_us || !d->registry || d->paused)
        return;
    d->tick_at_us = UINT64_MAX;
    commit_and_tick(d);
}

static void on_turn_end(void *obj, uint64_t token)
{
    struct sim_daemon *d = obj;

    if (token == d->turn_at_us && d->registry && !d->paused)
        commit_and_tick(d);
}

/* Mostly a turn is one message; now and then several come together. */
static void turn_has_work(struct sim_daemon *d)
{
    struct sim_world *w = d->sim->world;
    uint64_t delay_us = 1 + world_below(w, 2000);

    if (d->turn_at_us)
        return;
    if (world_chance(w, 700)) {
        commit_and_tick(d);
        return;
    }
    d->turn_at_us = world_now(w) + delay_us;
    world_after(w, delay_us, on_turn_end, d, d->turn_at_us);
}

/* -- what the network calls ------------------------------------------------- */

static void dismiss(struct daemon_conn *g)
{
    struct registry_peer *p = g->peer;

    if (!p)
        return;
    g->peer = NULL;
    oracle_gone(g->daemon->sim->oracle, agent_of_link(g->link), g->link);
    registry_disconnect(g->daemon->registry, p, now_ms(g->daemon));
}

static void on_opened(void *arg, struct sim_link *l)
{
    struct sim_daemon *d = arg;
    struct daemon_conn *g = world_alloc(d->sim->world, sizeof(*g));
    bool own = !d->sim->plan.standalone && link_is_local(l);

    g->daemon = d;
    g->link = l;
    g->peer = registry_connect(
        d->registry, g,
        &(struct peer_origin){ .address = own ? "" : link_address(l),
                               .uid = PEER_UID_UNKNOWN,
                               .access = ACCESS_AGENT });
    link_set_tag(l, g);
}

static void on_message(void *arg, struct sim_link *l, const struct msg *m)
{
    struct sim_daemon *d = arg;
    struct daemon_conn *g = link_tag(l);
    struct sim_agent *a = agent_of_link(l);
    struct err e;

    if (!g->peer || g->hung_up)
        return;
    oracle_hears(d->sim->oracle, a, l, m);
    if (registry_message(d->registry, g->peer, m, now_ms(d), wall_ms(d), &e) < 0) {
        trace_line(&d->sim->trace, "daemon", "closes %s: %s", link_name(l), e.text);
        if (a && !link_is_tainted(l))
            trace_violation(&d->sim->trace, "%s broke the protocol: %s", a->name,
                            e.text);
        dismiss(g);
        link_close(l, LINK_SERVER);
    } else {
        oracle_has_heard(d->sim->oracle, a, l, m);
    }
    turn_has_work(d);
}

static void on_closed(void *arg, struct sim_link *l, const char *why)
{
    struct sim_daemon *d = arg;
    struct daemon_conn *g = link_tag(l);

    if (!g || !g->peer)
        return;
    dismiss(g);
    turn_has_work(d);
}

static uint32_t body_max(void *arg, struct sim_link *l)
{
    struct daemon_conn *g = link_tag(l);

    return g && g->peer ? proto_body_max(registry_phase(g->peer)) : FRAME_BODY_MAX;
}

static bool is_asleep(void *arg)
{
    const struct sim_daemon *d = arg;

    return d->paused;
}

static const struct link_calls daemon_calls = { .opened = on_opened,
                                                .message = on_message,
                                                .closed = on_closed,
                                                .body_max = body_max,
                                                .asleep = is_asleep };

/* -- what the registry calls ------------------------------------------------ */

static void on_send(void *arg, void *conn, const struct msg *m)
{
    struct sim_daemon *d = arg;
    struct daemon_conn *g = conn;

    if (d->dying || g->hung_up || !link_is_open(g->link, LINK_SERVER))
        return;
    oracle_sends(d->sim->oracle, agent_of_link(g->link), m);
    hold_parcel(d, link_pack(g->link, LINK_SERVER, m));
}

static void finish_hang_up(void *obj, uint64_t token)
{
    struct daemon_conn *g = obj;

    if (!g->peer || g->daemon->paused)
        return;
    dismiss(g);
    link_close(g->link, LINK_SERVER);
    turn_has_work(g->daemon);
}

static void on_hang_up(void *arg, void *conn)
{
    struct sim_daemon *d = arg;
    struct daemon_conn *g = conn;

    if (d->dying || g->hung_up)
        return;
    g->hung_up = true;
    world_after(d->sim->world, 1 + world_below(d->sim->world, 5000), finish_hang_up, g,
                0);
}

static void on_event(void *arg, const struct msg_event *event, uint32_t source)
{
    struct sim_daemon *d = arg;

    if (!event_kind_find(event->kind))
        trace_violation(&d->sim->trace, "an event of unknown kind \"%s\"", event->kind);
    if (!d->dying)
        trace_line(&d->sim->trace, "daemon", "* %s %s: %s", event->run_id, event->host,
                   event->text);
}

static struct id128 random_id(void *arg)
{
    struct sim_daemon *d = arg;

    return world_id(d->sim->world);
}

/* -- life and death --------------------------------------------------------- */

struct sim_daemon *daemon_create(struct sim *s)
{
    struct sim_daemon *d = world_alloc(s->world, sizeof(*d));

    d->sim = s;
    machine_clock_init(&d->clock, s->world);
    if (s->plan.standalone)
        d->disk = memdisk_create();
    d->outbox_last = &d->outbox;
    return d;
}

static void start_later(void *obj, uint64_t token)
{
    struct sim_daemon *d = obj;

    d->starting = false;
    if (!d->registry)
        daemon_start(d);
}

static void start_after(struct sim_daemon *d, uint64_t delay_us)
{
    if (d->starting)
        return;
    d->starting = true;
    world_after(d->sim->world, delay_us, start_later, d, 0);
}

/* The oracles compare a node's incarnation with that of its agent. */
static struct id128 same_id(void *arg, const struct id128 *incarnation)
{
    return *incarnation;
}

void daemon_start(struct sim_daemon *d)
{
    struct registry_config c = { .standalone = d->sim->plan.standalone,
                                 .disk = d->disk ? memdisk_disk(d->disk) : NULL,
                                 .software = "sim 1",
                                 .random_id = random_id,
                                 .digest = same_id,
                                 .send = on_send,
                                 .hang_up = on_hang_up,
                                 .event = on_event,
                                 .arg = d };
    struct err e;

    if (d->rebooted)
        machine_clock_init(&d->clock, d->sim->world);
    d->rebooted = false;
    d->registry = registry_create(&c, now_ms(d), wall_ms(d), &e);
    if (!d->registry) {
        trace_line(&d->sim->trace, "daemon", "does not start: %s", e.text);
        if (d->sim->healed)
            trace_violation(&d->sim->trace, "the daemon does not start again: %s",
                            e.text);
        start_after(d, RESTART_AGAIN_US);
        return;
    }
    trace_line(&d->sim->trace, "daemon", "starts (%llu torn bytes cut off)",
               (unsigned long long)registry_cut_bytes(d->registry));
    d->crash_in_commit = false;
    d->restart_us = RESTART_AGAIN_US;
    d->slept_ms = 0;
    d->tick_at_us = UINT64_MAX;
    network_listen(d->sim->network, &daemon_calls, d);
    oracle_restored(d->sim->oracle);
    commit_and_tick(d);
}

static void abandon(struct sim_link *l, void *arg)
{
    struct daemon_conn *g = link_tag(l);
    bool *quiet = arg;

    if (g && g->peer) {
        registry_disconnect(g->daemon->registry, g->peer, now_ms(g->daemon));
        g->peer = NULL;
    }
    link_abandon(l, LINK_SERVER, *quiet);
}

void daemon_crash(struct sim_daemon *d, bool quiet, uint64_t restart_us)
{
    if (!d->registry || d->dying)
        return;
    trace_line(&d->sim->trace, "daemon", "dies%s", quiet ? " with its machine" : "");
    d->dying = true;
    d->rebooted = quiet;
    while (d->outbox) {
        struct sim_parcel *p = d->outbox;

        d->outbox = parcel_next(p);
        parcel_drop(p);
    }
    d->outbox_last = &d->outbox;
    network_listen(d->sim->network, NULL, NULL);
    if (d->disk) /* what its destructors do does not count */
        memdisk_cut_power_after(d->disk, 0);
    network_each(d->sim->network, abandon, &quiet);
    registry_destroy(d->registry);
    if (d->disk)
        memdisk_crash(d->disk, world_random(d->sim->world));
    d->registry = NULL;
    d->dying = d->paused = d->crash_in_commit = d->disk_fails = false;
    d->turn_at_us = 0;
    d->tick_at_us = UINT64_MAX;
    oracle_crashed(d->sim->oracle);
    start_after(d, restart_us);
}

void daemon_destroy(struct sim_daemon *d)
{
    bool quiet = true;

    d->dying = true;
    if (d->registry) {
        network_each(d->sim->network, abandon, &quiet);
        registry_destroy(d->registry);
    }
    if (d->disk)
        memdisk_destroy(d->disk);
}

/* -- faults ----------------------------------------------------------------- */

void daemon_crash_in_commit(struct sim_daemon *d, unsigned operation,
                            uint64_t restart_us)
{
    d->crash_in_commit = true;
    d->crash_operation = operation;
    d->restart_us = restart_us;
}

static void wake_daemon(void *obj, uint64_t token)
{
    struct sim_daemon *d = obj;

    if (!d->paused)
        return;
    d->paused = false;
    d->slept_ms += now_ms(d) - d->paused_at_ms;
    trace_line(&d->sim->trace, "daemon", "wakes up");
    d->tick_at_us = UINT64_MAX;
    if (world_chance(d->sim->world, 500)) /* timers first, or messages first */
        commit_and_tick(d);
    network_wake(d->sim->network);
    if (d->registry)
        commit_and_tick(d);
}

void daemon_pause(struct sim_daemon *d, uint64_t for_us)
{
    if (!d->registry || d->paused)
        return;
    trace_line(&d->sim->trace, "daemon", "pauses for %llu ms",
               (unsigned long long)for_us / 1000);
    d->paused = true;
    d->paused_at_ms = now_ms(d);
    world_after(d->sim->world, for_us, wake_daemon, d, 0);
}

void daemon_set_disk_full(struct sim_daemon *d, bool full)
{
    if (!d->disk)
        return;
    trace_line(&d->sim->trace, "daemon", "disk %s", full ? "full" : "has room again");
    memdisk_set_room(d->disk, full ? memdisk_used(d->disk) : SIZE_MAX);
}

void daemon_fail_disk(struct sim_daemon *d, uint64_t restart_us)
{
    if (!d->disk || !d->registry)
        return;
    d->restart_us = restart_us;
    d->disk_fails = true;
    trace_line(&d->sim->trace, "daemon", "the next sync of its disk will fail");
    memdisk_fail_next_sync(d->disk);
}

static void lose_past(struct sim_daemon *d, const uint8_t *journal, size_t size)
{
    trace_line(&d->sim->trace, "daemon", "its disk has lost what came last");
    memdisk_put(d->disk, JOURNAL_NAME, journal, size);
    oracle_regressed(d->sim->oracle);
}

/* A copy of what its journal holds now. */
static uint8_t *copy_journal(struct sim_daemon *d, size_t *size)
{
    const uint8_t *held = memdisk_get(d->disk, JOURNAL_NAME, size);
    uint8_t *copy = held ? world_alloc(d->sim->world, *size + 1) : NULL;

    if (copy)
        memcpy(copy, held, *size);
    return copy;
}

void daemon_restore_disk(struct sim_daemon *d, uint64_t restart_us)
{
    if (!d->disk || !d->registry)
        return;
    if (!d->backup) {
        d->backup = copy_journal(d, &d->backup_size);
        return;
    }
    daemon_crash(d, true, restart_us);
    lose_past(d, d->backup, d->backup_size);
    d->backup = NULL;
}

void daemon_tear_disk(struct sim_daemon *d, uint64_t restart_us)
{
    uint8_t *journal;
    size_t size, torn;

    if (!d->disk || !d->registry)
        return;
    daemon_crash(d, true, restart_us);
    journal = copy_journal(d, &size);
    torn = 1 + world_below(d->sim->world, TORN_BYTES_MAX);
    if (journal && torn < size / 2)
        lose_past(d, journal, size - torn);
}

void daemon_heal(struct sim_daemon *d)
{
    daemon_set_disk_full(d, false);
    if (d->disk_fails || d->crash_in_commit) /* only another life is rid of that */
        daemon_crash(d, true, RESTART_AGAIN_US);
}

void daemon_jump_wall_clock(struct sim_daemon *d)
{
    d->clock.wall_ms = world_between(d->sim->world, 1000000000000, 2000000000000);
}

bool daemon_is_up(const struct sim_daemon *d)
{
    return d->registry && !d->paused;
}

bool daemon_is_dying(const struct sim_daemon *d)
{
    return d->dying;
}

uint64_t daemon_awake_ms(const struct sim_daemon *d)
{
    return now_ms(d) - d->slept_ms;
}

const struct job *daemon_job(const struct sim_daemon *d, const char *run_id)
{
    const struct job *j = d->registry && !d->dying ? registry_jobs(d->registry) : NULL;

    while (j && strcmp(j->run_id, run_id) != 0)
        j = j->next;
    return j;
}
