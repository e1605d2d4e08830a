/* SPDX-License-Identifier: MIT */
/* What a peer may send, and what it is shown. */
#include "rendezvous/job/registry/registry_internal.h"

#include <stdio.h>
#include <string.h>

bool registry_is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

bool registry_is_anonymous(const struct registry_peer *p)
{
    return !*p->key_id && p->uid == PEER_UID_UNKNOWN && *p->address &&
           !registry_is_loopback(p->address);
}

void registry_show_all(struct registry_peer *p)
{
    p->is_own_tool = true;
}

enum access registry_sight(const struct registry_peer *p)
{
    if (p->is_own_tool)
        return ACCESS_AGENT;
    return p->access == ACCESS_AGENT && registry_is_anonymous(p) ? ACCESS_OPERATE
                                                                 : p->access;
}

/* Its key does not allow the message: both sides say so. */
static void deny_message(struct registry *g, struct registry_peer *p,
                         const struct msg *m)
{
    const char *needed = access_names[proto_least_access(m->type)];
    char who[160], why[256];

    registry_refuse(p, m, REFUSED_ACCESS, false,
                    "the key in use has the role \"%s\", and this needs the role "
                    "\"%s\": name another file with --key-file",
                    access_names[p->access], needed);
    snprintf(why, sizeof(why), "%s, whose key %s has the role \"%s\", may not send %s",
             registry_describe(p, who, sizeof(who)), p->key_id, access_names[p->access],
             proto_name(m->type));
    if (g->config.denied)
        g->config.denied(g->config.arg, p->conn, why);
}

static registry_handler *const handlers[MSG_TYPE_MAX] = {
#define REQUEST(number, name, body, phase, access, handler) [MSG_##name] = handler,
#include "rendezvous/wire/protocol/message_table.h"
};

int registry_message(struct registry *g, struct registry_peer *p, const struct msg *m,
                     uint64_t now_ms, uint64_t wall_ms, struct err *e)
{
    g->now_ms = now_ms;
    g->wall_ms = wall_ms;
    g->source = p->source;
    if (p->access == ACCESS_NONE)
        return err_set(e, "it has shown no key");
    if (!proto_allowed(m->type, p->phase))
        return err_set(e, "%s is not allowed now",
                       proto_name(m->type) ? proto_name(m->type)
                                           : "an unknown message");
    if (p->phase == PROTO_JOINED &&
        !id128_equal(&m->instance, &p->job->membership.instance))
        return err_set(e, "%s is of another launch of the job", proto_name(m->type));
    if (proto_least_access(m->type) > p->access)
        deny_message(g, p, m);
    else
        handlers[m->type](g, p, m);
    return 0;
}
