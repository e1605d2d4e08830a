/* SPDX-License-Identifier: MIT */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "launcher/crunctl/ctl_client.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/wire/protocol/proto.h"

/* crunctl drain: a node leaves in good order, and the others continue without it. */
static int cmd_drain_run(struct ctl_client *c, const struct ctl_options *o,
                         const char *word, struct err *e)
{
    struct msg m = { .type = MSG_DRAIN };
    char text[2 * sizeof(m.ack.text)];
    int rc;

    if (!proto_is_name(word) || strlen(word) >= sizeof(m.drain.node)) {
        err_set(e, "\"%s\" is not a node's name or slot", word);
        return CTL_EXIT_USAGE;
    }
    snprintf(m.drain.run_id, sizeof(m.drain.run_id), "%s", o->run_id ? o->run_id : "");
    snprintf(m.drain.node, sizeof(m.drain.node), "%s", word);
    ctl_client_user(m.drain.user, sizeof(m.drain.user));
    rc = ctl_client_ask(c, &m, NULL, NULL, NULL, e);
    if (rc == CTL_EXIT_OK && *ctl_client_answer_text(c))
        printf("%s\n", text_printable(ctl_client_answer_text(c), text, sizeof(text)));
    return rc;
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
