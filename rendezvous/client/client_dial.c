/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/client_internal.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/server/server.h"
#include "rendezvous/wire/net/dialer.h"

/*
 * One connection that the session asks for may take several tries at once, at one
 * address or at several (client_targets.h). With one address the first that is
 * connected becomes the connection. With several it is the first that a rendezvous
 * answers, because another program may listen at one of them: each try sends HELLO.
 */

/* Why a target has failed; the reasons of one round stand side by side. */
static void client_note_reason(struct client *c, const struct net_addr *where,
                               const char *why)
{
    size_t used = strlen(c->lost_why);
    char place[NET_TEXT_SIZE] = "";

    if (where)
        net_format(where, place, sizeof(place));
    snprintf(c->lost_why + used, sizeof(c->lost_why) - used, "%s%s%s%s",
             used ? "; " : "", place, where ? ": " : "", why);
}

void client_note_lost(struct client *c, const struct net_addr *where, const char *why)
{
    c->lost = true;
    *c->lost_why = '\0';
    client_note_reason(c, where, why);
}

void client_drop_tries(struct client *c, const struct client_target *target,
                       const struct client_link *but)
{
    struct client_link *next;

    for (struct client_link *l = LIST_FIRST(&c->links); l; l = next) {
        next = LIST_NEXT(l, entry);
        if (!l->trying || l == but || (target && l->target != target))
            continue;
        conn_destroy(l->conn);
        client_link_forget(l);
    }
}

void client_give_up_tries(struct client *c)
{
    loop_timer_cancel(&c->again);
    client_drop_tries(c, NULL, NULL);
    c->targets.count = 0;
    c->race_ends_ms = 0;
}

static struct client_link *client_first_connected(struct client *c)
{
    struct client_link *l, *first = NULL;

    LIST_FOREACH(l, &c->links, entry)
        if (l->trying && l->target->connected)
            first = l; /* the list has the newest first */
    return first;
}

void client_end_target(struct client *c, struct client_target *target, const char *why)
{
    target->failed = true;
    target->connected = false;
    client_drop_tries(c, target, NULL);
    if (!client_first_connected(c))
        c->race_ends_ms = 0;
    if (target->tries == 1 || !target->refers)
        client_note_reason(c, &target->addr, why);
}

void client_arm_race(struct client *c)
{
    uint64_t at = UINT64_MAX;

    if (client_targets_pick(&c->targets))
        at = clock_ms() + client_targets_delay_ms(&c->targets);
    if (c->race_ends_ms && c->race_ends_ms < at)
        at = c->race_ends_ms;
    if (at == UINT64_MAX)
        loop_timer_cancel(&c->again);
    else
        loop_timer_arm(&c->again, at);
    /* without a target that could answer, this round is lost */
    c->lost |= client_targets_alive(&c->targets) == 0 && !dialer_is_busy(c->dialer) &&
               !c->link;
}

static int client_try_target(struct client *c, struct client_target *target,
                             struct err *e)
{
    struct client_link *l = client_link_create(c);

    l->target = target;
    target->tries++;
    l->conn = client_link_connect(l, e);
    if (!l->conn) {
        client_link_forget(l);
        return -1;
    }
    l->trying = true;
    target->failed = target->refers = false;
    return 0;
}

/* Another try, if there can be one; else the earlier ones continue. */
static void client_try_next(struct client *c)
{
    struct client_target *target;
    struct err e;

    while ((target = client_targets_pick(&c->targets))) {
        bool again = target->tries > 0;

        if (client_try_target(c, target, &e) == 0)
            break;
        log_debug("%s", e.text);
        if (!again)
            client_end_target(c, target, e.text);
        if (again)
            break;
    }
    client_arm_race(c);
}

void client_race_on(struct client *c)
{
    struct client_link *l = client_first_connected(c);

    if (client_targets_alive(&c->targets) == 0)
        client_arm_race(c);
    else if (l && client_link_is_sole(l))
        client_link_win(l);
    else if (!l || client_targets_pick(&c->targets))
        client_try_next(c);
}

/* A late timer says that this process was busy, not that a packet was lost: the answer
 * may wait in the kernel. */
void client_on_again(void *arg)
{
    struct client *c = arg;
    uint64_t now = clock_ms();

    if (now > c->again.at_ms + CONNECT_AGAIN_MS / 2) {
        loop_timer_arm(&c->again, now + CONNECT_AGAIN_MS);
    } else if (c->race_ends_ms && now >= c->race_ends_ms) {
        client_link_win(client_first_connected(c));
        client_settle(c);
    } else {
        client_try_next(c);
        client_settle(c);
    }
}

void client_connect_locally(struct client *c)
{
    struct conn_calls calls;
    struct err e;
    int fd = server_connect_local(c->local, &e);

    if (fd < 0) {
        client_note_lost(c, NULL, e.text);
        return;
    }
    c->link = client_link_create(c);
    calls = client_link_calls(c->link);
    c->link->conn = conn_create(c->loop, fd, false, NULL, &calls);
    c->opened = true;
}

static void on_found(void *arg, bool first, const struct net_addr *list, size_t count,
                     const char *why)
{
    struct client *c = arg;
    bool tried = client_targets_alive(&c->targets) > 0;

    if (first && c->calls.resolved)
        c->calls.resolved(c->calls.arg, list, count, why);
    if (c->local) {
        if (!c->link)
            client_connect_locally(c);
        client_settle(c);
        return;
    }
    for (size_t i = 0; i < count; i++)
        client_targets_add(&c->targets, &list[i]);
    if (count == 0)
        client_note_reason(c, NULL, why);
    if (!tried || count == 0)
        client_race_on(c);
    else
        client_arm_race(c);
    client_settle(c);
}

void client_dial(struct client *c)
{
    if (c->local) {
        client_connect_locally(c);
        return;
    }
    if (c->dials_anew)
        client_dial_keepers(c);
    c->targets.at_once = c->keepers != NULL;
    dialer_next(c->dialer, on_found, c);
}
