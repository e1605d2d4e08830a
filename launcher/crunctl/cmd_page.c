/* SPDX-License-Identifier: MIT */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "launcher/crunctl/ctl_client.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text.h"

/* crunctl page: a link by which a browser sees what this crunctl does. */
static void print_link(void *arg, const struct msg *m)
{
    char url[2 * sizeof(m->page.url)];

    (void)arg;
    if (m->type == MSG_PAGE)
        printf("%s\n", text_printable(m->page.url, url, sizeof(url)));
}

static int cmd_page_run(struct ctl_client *c, const struct ctl_options *o,
                        const char *word, struct err *e)
{
    struct msg m = { .type = MSG_ASK_PAGE };

    (void)word;
    if (!ctl_client_has_page(c)) {
        err_set(e, "the rendezvous is of an older version, which has no page");
        return CTL_EXIT_REFUSED;
    }
    snprintf(m.ask_page.run_id, sizeof(m.ask_page.run_id), "%s",
             o->run_id ? o->run_id : "");
    return ctl_client_ask(c, &m, print_link, NULL, NULL, e);
}

static const struct opt table[] = {
    CTL_COMMON_FLAGS,
    { .name = NULL },
};

const struct ctl_command ctl_page = {
    .name = "page",
    .takes_job = true,
    .summary = "print a link to the page, for a browser",
    .table = table,
    .access = ACCESS_VIEW,
    .run = cmd_page_run,
};
