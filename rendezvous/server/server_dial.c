/* SPDX-License-Identifier: MIT */
/* Connections from this rendezvous to others. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/log.h"
#include "rendezvous/common/security/key_ring.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/server/server_internal.h"
#include "rendezvous/wire/protocol/own_build.h"

uint32_t server_on_body_max(void *arg, struct conn *c)
{
    return FRAME_BODY_MAX;
}

void server_greet(const struct server *s, struct conn *c, enum peer_kind role)
{
    struct msg m = { .type = MSG_HELLO,
                     .hello = { .version_min = PROTO_VERSION_MAX,
                                .version_max = PROTO_VERSION_MAX,
                                .role = role } };

    if (role == PEER_REPLICA)
        m.instance = *server_instance(s);
    snprintf(m.hello.software, sizeof(m.hello.software), "%s", own_build_crun);
    conn_send(c, &m);
    conn_flush(c);
}

struct conn *server_dial(struct server *s, const struct net_addr *addr,
                         void (*connected)(void *arg, struct conn *c),
                         const struct conn_calls *calls)
{
    struct tls_psk psk;
    struct conn *conn = NULL;
    struct err e;

    if (!s->config.keys || key_ring_use(s->config.keys, ACCESS_AGENT, &psk, &e) == 0)
        conn = conn_connect(s->loop, addr, s->config.keys ? &psk : NULL, connected,
                            calls, &e);
    explicit_bzero(&psk, sizeof(psk));
    if (!conn)
        log_debug("%s", e.text);
    return conn;
}
