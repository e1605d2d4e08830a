/* SPDX-License-Identifier: MIT */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/crunctl/ctl_client.h"
#include "launcher/crunctl/ctl_jobs.h"
#include "launcher/remote/rsh_command.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/text.h"

/* crunctl page: a link by which a browser sees what this crunctl does. */

/* The machine of an endpoint, unless it is this one. */
static void find_machine(const char *endpoint, char *host, size_t size)
{
    struct net_addr list[4];
    size_t count = 0;
    uint16_t port;
    struct err e;

    *host = '\0';
    if (net_split(endpoint, 0, host, size, &port, &e) < 0 || !*host ||
        net_resolve(host, port, list, 4, &count, &e) < 0 || count == 0 ||
        net_is_local(&list[0]))
        *host = '\0';
}

/* The port of a link to the loopback of the machine that serves it; 0: it is for all.
 */
static unsigned loopback_port(const char *url)
{
    static const char *const hosts[] = { "http://127.0.0.1:", "http://[::1]:",
                                         "http://localhost:" };

    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++)
        if (strncmp(url, hosts[i], strlen(hosts[i])) == 0)
            return (unsigned)atoi(url + strlen(hosts[i]));
    return 0;
}

/* What must run here for the link of another machine to lead there. */
static void print_tunnel(const struct ctl_options *o, unsigned port)
{
    const struct ctl_job *job = o->job;
    char host[256] = "", where[1024], args[1024];

    if (job && *job->host && !rsh_is_this_machine(job->host))
        snprintf(host, sizeof(host), "%s", job->host);
    else if (o->endpoint)
        find_machine(o->endpoint, host, sizeof(host));
    if (!*host)
        return;
    if (job && *job->rsh)
        log_info("the link is for a browser on %s", host);
    else
        printf("ssh -N -L %u:127.0.0.1:%u %s%s%s\n", port, port,
               text_printable(job ? job->ssh_args : "", args, sizeof(args)),
               job && *job->ssh_args ? " " : "",
               text_printable(host, where, sizeof(where)));
}

static void print_link(void *arg, const struct msg *m)
{
    char url[2 * sizeof(m->page.url)];

    if (m->type != MSG_PAGE)
        return;
    if (loopback_port(m->page.url))
        print_tunnel(arg, loopback_port(m->page.url));
    printf("%s\n", text_printable(m->page.url, url, sizeof(url)));
}

static int cmd_page_run(struct ctl_client *c, const struct ctl_options *o,
                        const char *word, struct err *e)
{
    struct msg m = { .type = MSG_ASK_PAGE };

    snprintf(m.ask_page.run_id, sizeof(m.ask_page.run_id), "%s",
             o->run_id ? o->run_id : "");
    return ctl_client_ask(c, &m, print_link, (void *)(uintptr_t)o, NULL, e);
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
