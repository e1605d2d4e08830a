/* SPDX-License-Identifier: MIT */
#include "rendezvous/server/port_holder.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/version.h"
#include "rendezvous/common/security/key_ring.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/server/limits.h"
#include "rendezvous/wire/net/conn.h"
#include "rendezvous/wire/protocol/job_name.h"

struct port_holder {
    struct loop *loop;
    bool closed, known;
    struct msg_job_status job; /* the first of the rendezvous */
};

static int port_holder_on_message(void *arg, struct conn *conn, const struct msg *m,
                                  struct err *e)
{
    struct msg ask = { .type = MSG_STATUS, .sequence = 2 };
    struct port_holder *p = arg;

    if (m->type == MSG_WELCOME) {
        conn_send(conn, &ask);
        conn_flush(conn);
        return 0;
    }
    if (m->type == MSG_JOB_STATUS && !p->known) {
        p->known = true;
        p->job = m->job_status;
    }
    loop_stop(p->loop);
    return 0;
}

static uint32_t port_holder_body_max(void *arg, struct conn *conn)
{
    return FRAME_BODY_MAX;
}

static void port_holder_on_closed(void *arg, struct conn *conn, const char *why)
{
    struct port_holder *p = arg;

    p->closed = true;
    loop_stop(p->loop);
}

static void port_holder_on_connected(void *arg, struct conn *conn)
{
    struct msg hello = { .type = MSG_HELLO,
                         .sequence = 1,
                         .hello = { .version_min = PROTO_VERSION_MIN,
                                    .version_max = PROTO_VERSION_MAX,
                                    .role = PEER_CTL,
                                    .software = "crun " CRUN_VERSION } };

    conn_send(conn, &hello);
    conn_flush(conn);
}

static void port_holder_on_timeout(void *arg)
{
    loop_stop(((struct port_holder *)arg)->loop);
}

static struct conn *port_holder_connect(struct port_holder *p,
                                        const struct net_addr *addr,
                                        struct key_ring *keys)
{
    struct conn_calls calls = { .message = port_holder_on_message,
                                .body_max = port_holder_body_max,
                                .closed = port_holder_on_closed,
                                .arg = p };
    struct tls_psk psk;
    struct conn *conn;
    struct err e;

    if (keys && key_ring_use(keys, ACCESS_VIEW, &psk, &e) < 0)
        return NULL;
    conn = conn_connect(p->loop, addr, keys ? &psk : NULL, port_holder_on_connected,
                        &calls, &e);
    explicit_bzero(&psk, sizeof(psk));
    return conn;
}

bool port_holder_describe(const struct net_addr *addr, struct key_ring *keys,
                          uint64_t within_ms, char *text, size_t size)
{
    struct port_holder p = { .loop = loop_create() };
    struct conn *conn = port_holder_connect(&p, addr, keys);
    struct loop_timer limit;
    char started[32], name[JOB_NAME_SIZE];
    bool named;

    loop_timer_init(&limit, p.loop, port_holder_on_timeout, &p);
    if (conn) {
        loop_timer_arm(&limit, clock_ms() + within_ms);
        loop_run(p.loop);
        if (!p.closed)
            conn_destroy(conn);
    }
    loop_timer_fini(&limit);
    loop_destroy(p.loop);
    clock_format_time(clock_wall_ms() - p.job.age_ms, started, sizeof(started));
    named = !job_name_is_generated(p.job.run_id) && *p.job.program;
    if (p.known)
        snprintf(text, size, "job \"%s\"%s%s%s, started %.8s",
                 job_name(p.job.run_id, p.job.program, name, sizeof(name)),
                 named ? " (" : "", named ? p.job.program : "", named ? ")" : "",
                 started);
    return p.known;
}
