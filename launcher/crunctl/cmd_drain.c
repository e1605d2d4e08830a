/* SPDX-License-Identifier: MIT */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "launcher/crunctl/ctl_client.h"
#include "rendezvous/wire/protocol/proto.h"

/* crunctl drain: a node leaves in good order, and the others continue without it. */
static int cmd_drain_run(struct ctl_client *c, const struct ctl_options *o,
                         const char *word, struct err *e)
{
    struct msg m = { .type = MSG_DRAIN };

    if (!proto_is_name(word) || strlen(word) >= sizeof(m.drain.node)) {
        err_set(e, "\"%s\" is not a node's name or slot", word);
        return CTL_EXIT_USAGE;
    }
    snprintf(m.drain.run_id, sizeof(m.drain.run_id), "%s", o->run_id ? o->run_id : "");
    snprintf(m.drain.node, sizeof(m.drain.node), "%s", word);
    ctl_client_user(m.drain.user, sizeof(m.drain.user));
    return ctl_client_order(c, &m, e);
}

static const struct opt table[] = { CTL_COMMON_FLAGS, { .name = NULL } };

const struct ctl_command ctl_drain = {
    .name = "drain",
    .words = "NODE",
    .takes_job = true,
    .summary = "let a node (its name, or its slot) leave in good order",
    .table = table,
    .access = ACCESS_OPERATE,
    .run = cmd_drain_run,
};
