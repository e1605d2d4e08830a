/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/page/nodes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/real.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/show/page/fields.h"

#define SLOW_FACTOR 1.2
#define BEHIND_SECONDS 5 /* of steps: the heartbeats of nodes differ by less */

const struct node_sign_row node_signs[NODE_SIGN_COUNT] = {
    [NODE_SIGN_LOST] = { "!", "lost", "bad" },
    [NODE_SIGN_QUARANTINED] = { "q", "quarantined", "bad" },
    [NODE_SIGN_XID] = { "x", "with a GPU error", "bad" },
    [NODE_SIGN_BEHIND] = { "<", "behind", "wait" },
    [NODE_SIGN_SLOW] = { "▲", "slow", "wait" },
    [NODE_SIGN_UNKNOWN] = { "?", "unknown", "wait" },
    [NODE_SIGN_LEAVING] = { "l", "leaving", "wait" },
    [NODE_SIGN_STOPPING] = { "■", "stopping or stopped", "off" },
    [NODE_SIGN_STARTING] = { "s", "starting", "wait" },
    [NODE_SIGN_WAITING] = { "w", "waiting", "off" },
    [NODE_SIGN_SPARE] = { "+", "spare", "off" },
    [NODE_SIGN_RUNNING] = { "·", "running", "good" },
    [NODE_SIGN_FINISHED] = { "✓", "finished", "done" },
};

static enum node_sign sign_of_state(const char *state)
{
    static const struct {
        const char *state;
        enum node_sign sign;
    } rows[] = {
        { "running", NODE_SIGN_RUNNING },   { "waiting", NODE_SIGN_WAITING },
        { "starting", NODE_SIGN_STARTING }, { "finished", NODE_SIGN_FINISHED },
        { "done", NODE_SIGN_FINISHED },     { "stopping", NODE_SIGN_STOPPING },
        { "stopped", NODE_SIGN_STOPPING },  { "leaving", NODE_SIGN_LEAVING },
        { "spare", NODE_SIGN_SPARE },       { "quarantined", NODE_SIGN_QUARANTINED },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].state, state) == 0)
            return rows[i].sign;
    return NODE_SIGN_UNKNOWN;
}

static enum node_sign sign_of_node(const struct node_view *n)
{
    enum node_sign sign = sign_of_state(field_text(n->json, "state"));

    if (sign == NODE_SIGN_FINISHED)
        return sign;
    if (cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(n->json, "connected")))
        return NODE_SIGN_LOST;
    if (field_count(n->json, "xid") && sign > NODE_SIGN_XID)
        return NODE_SIGN_XID;
    if (sign == NODE_SIGN_RUNNING && n->behind)
        return NODE_SIGN_BEHIND;
    if (sign == NODE_SIGN_RUNNING && field_number(n->json, "slowness") >= SLOW_FACTOR)
        return NODE_SIGN_SLOW;
    return sign;
}

static size_t count_items(const cJSON *item)
{
    size_t count = 0;

    for (; item; item = item->next)
        count++;
    return count;
}

static void read_node(struct node_view *n, const cJSON *json)
{
    *n = (struct node_view){ .json = json, .rate = NAN };
    if (field_number(json, "group_rank") >= 0)
        n->step = field_count(json, "step");
    if (n->step)
        n->rate = field_number(json, "steps_per_s");
}

/* Where it is now, if it goes on as fast: what nodes have told differs in age by up to
 * a lease. */
static double step_now(const struct node_view *n)
{
    double rate = isnan(n->rate) ? 0 : n->rate;

    return (double)n->step + rate * (double)field_count(n->json, "heard_ms_ago") / 1000;
}

void node_list_init(struct node_list *list, const cJSON *job)
{
    const cJSON *item = field_items(job, "nodes");
    double most = 0, rate = 0;

    *list = (struct node_list){ .count = count_items(item) };
    list->node = list->count ? xcalloc(list->count, sizeof(*list->node)) : NULL;
    for (size_t i = 0; i < list->count; i++, item = item->next) {
        read_node(&list->node[i], item);
        most = real_max(most, step_now(&list->node[i]));
        rate = real_max(rate, list->node[i].rate);
    }
    for (size_t i = 0; i < list->count; i++) {
        struct node_view *n = &list->node[i];

        if (n->step && most - step_now(n) > BEHIND_SECONDS * rate + 1)
            n->behind = (uint64_t)(most - step_now(n));
        n->sign = sign_of_node(n);
        list->signs[n->sign]++;
    }
}

void node_list_fini(struct node_list *list)
{
    free(list->node);
    *list = (struct node_list){ .count = 0 };
}
