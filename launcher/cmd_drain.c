/* SPDX-License-Identifier: MIT */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "launcher/ctl.h"
#include "rendezvous/proto.h"

/* crunctl drain: let a node leave in good order; the others go on without it. */
static int run(struct ctl *c, const struct ctl_options *o, const char *word,
               struct err *e)
{
    struct msg m = { .type = MSG_DRAIN };

    if (!proto_is_name(word) || strlen(word) >= sizeof(m.drain.node)) {
        err_set(e, "\"%s\" is not a node's name or slot", word);
        return CTL_EXIT_USAGE;
    }
    snprintf(m.drain.run_id, sizeof(m.drain.run_id), "%s", o->run_id ? o->run_id : "");
    snprintf(m.drain.node, sizeof(m.drain.node), "%s", word);
    return ctl_ask(c, &m, NULL, NULL, NULL, e);
}

static const struct opt table[] = { CTL_COMMON_FLAGS, { .name = NULL } };

const struct ctl_command ctl_drain = {
    .name = "drain",
    .words = "NODE",
    .summary = "let a node (its name, or its slot) leave in good order",
    .table = table,
    .run = run,
};
