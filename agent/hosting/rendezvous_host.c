/* SPDX-License-Identifier: MIT */
#include "agent/hosting/rendezvous_host.h"

#include <stdio.h>
#include <string.h>

#include "agent/cleanup/fd_limits.h"
#include "agent/hosting/own_name.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/server/port_holder.h"
#include "rendezvous/server/server.h"
#include "rendezvous/show/views/metrics_file.h"
#include "rendezvous/show/web/web.h"

#define ADDRESSES_MAX 16
#define DEFAULT_PORT 29400
/* A rendezvous of the same job that has left this endpoint has knocked by then. */
#define KNOCKED_MS 1500
/* How often this node looks for another one that was started as the first, too. */
#define MEET_MS 1000
#define MEET_WITHIN_MS 200 /* this one may find itself, and does not answer */
#define TAKEN_MS 2000
/* The process that had the port may have ended since, as a leaving host does. After so
 * long this node tries to take the port again: the job's rendezvous knocks there. */
#define YIELD_MS 3000
#define HOSTS_FILE "/etc/hosts"

/* Reads the first endpoint of the list: only that can be hosted. */
static int read_endpoint(struct rendezvous_host *h, const char *list, struct err *e)
{
    char first[HOST_NAME_MAX_BYTES + 8];

    snprintf(first, sizeof(first), "%.*s", (int)strcspn(list, ","), list);
    if (net_split(first, DEFAULT_PORT, h->name, sizeof(h->name), &h->port_wanted, e) <
        0)
        return -1;
    if (!*h->name)
        snprintf(h->name, sizeof(h->name), "127.0.0.1");
    return 0;
}

/* The user, or the node rank, says that it is here. */
static bool host_is_given(const struct rendezvous_host *h)
{
    return h->config->is_host == 1 || h->config->rendezvous == CONFIG_STATIC;
}

/* A name may have the addresses of several nodes: the one with the lowest hosts it. */
static const struct net_addr *
find_local_address(struct rendezvous_host *h, const struct net_addr *list, size_t count)
{
    const struct net_addr *lowest = net_lowest(list, count);
    char text[NET_TEXT_SIZE];

    if (!lowest || net_is_local(lowest))
        return lowest;
    for (size_t i = 0; i < count; i++)
        if (net_is_local(&list[i])) {
            if (host_is_given(h))
                return &list[i];
            log_at(h->is_lower ? LOG_DEBUG : LOG_INFO,
                   "of the addresses of %s, the lowest hosts the rendezvous: %s",
                   h->name, net_format_host(lowest, text, sizeof(text)));
            h->is_lower = true;
            break;
        }
    return NULL;
}

/* Another job may have the port: e names it. Returns -1. */
static int explain_taken_port(const struct rendezvous_host *h,
                              const struct net_addr *listen, struct err *e)
{
    char job[RUN_ID_MAX + PROGRAM_MAX_BYTES + 64], why[sizeof(e->text)];

    if (!host_is_given(h) || !net_port(listen) ||
        !port_holder_describe(listen, h->keys, TAKEN_MS, job, sizeof(job)))
        return -1;
    snprintf(why, sizeof(why), "%s", e->text);
    return err_set(e, "%.150s, %.250s: give this job another port", why, job);
}

/* A page that cannot be opened is no reason not to train. */
static void host_open_page(struct rendezvous_host *h)
{
    char host[HOST_NAME_MAX_BYTES + 1];
    struct server_page page = { .host = host,
                                .names = h->config->http_name,
                                .endpoint = "" };
    struct err e;

    if (!h->config->http)
        return;
    if (web_parse_listen(h->config->http, &page.listen, host, sizeof(host), &e) == 0 &&
        server_open_page(h->server, &page, &e) == 0)
        log_info("page at %s%s", server_page_url(h->server),
                 net_is_loopback(&page.listen)
                     ? ""
                     : ": all who reach it see the state of the job");
    else
        log_warn("no page: %s", e.text);
}

static struct server_config host_server_config(const struct rendezvous_host *h)
{
    return (struct server_config){ .run_id = h->config->run_id,
                                   .job = &h->config->job,
                                   .keys = h->keys,
                                   .fds_reserved = fd_limits_need(h->config),
                                   .store_client = h->calls.store_client,
                                   .event = h->calls.event,
                                   .replicas = h->config->replicas,
                                   .witness = h->config->witness,
                                   .witness_fd = h->config->witness_fd,
                                   .alone = h->config->alone,
                                   .moved = h->calls.moved,
                                   .given_up = h->calls.given_up,
                                   .fatal = h->calls.fatal,
                                   .arg = h->calls.arg };
}

static int start_server(struct rendezvous_host *h, const struct net_addr *listen,
                        struct err *e)
{
    struct server_config config = host_server_config(h);

    h->job = h->config->job;
    if (listen->len && !net_is_loopback(listen) && h->job.last_call_ms < KNOCKED_MS)
        h->job.last_call_ms = KNOCKED_MS;
    config.job = &h->job;
    config.listen = *listen;
    config.listener = h->config->rendezvous_fd;
    config.elsewhere = h->calls.elsewhere;
    h->server = server_create(h->loop, &config, e);
    if (!h->server)
        return explain_taken_port(h, listen, e);
    h->port = net_port(server_address(h->server));
    snprintf(h->address, sizeof(h->address), "%s", h->name);
    host_open_page(h);
    if (h->config->metrics_file)
        h->metrics = metrics_file_start(h->loop, h->config->metrics_file,
                                        server_view_metrics, h->server);
    if (!h->keys && h->port && !net_is_loopback(listen) && !h->config->no_key_warning)
        log_warn("anyone who reaches port %u of this machine can run code as you: give "
                 "all nodes the key that crunctl keygen makes (or --no-key-warning)",
                 h->port);
    return 0;
}

/* With IPv6 if this machine has it: that socket takes IPv4 too. */
static int start_everywhere(struct rendezvous_host *h, struct err *e)
{
    struct net_addr any[2];
    size_t count;

    if (net_resolve("", h->port_wanted, any, 2, &count, e) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (start_server(h, &any[i], e) == 0)
            return 0;
    return -1;
}

/*
 * If the endpoint's name means loopback here (Debian writes 127.0.1.1 for the machine's
 * own name) but the job has other nodes, those must reach this one. A loopback address
 * as typed stays one: several agents run on one machine.
 */
static bool must_listen_everywhere(const struct rendezvous_host *h,
                                   const struct net_addr *listen)
{
    struct net_addr number;
    struct err e;

    return h->config->job.max_nodes != 1 && net_is_loopback(listen) &&
           strcmp(h->name, "localhost") != 0 &&
           net_parse_host(h->name, 0, &number, &e) < 0;
}

static int host_at(struct rendezvous_host *h, const struct net_addr *own, struct err *e)
{
    if (!must_listen_everywhere(h, own))
        return start_server(h, own, e);
    log_info("%s means loopback on this machine: listening on all its addresses",
             h->name);
    return start_everywhere(h, e);
}

/* Another node has its rendezvous at that address: two are started as the first one.
 * This one finds out there what is wrong. */
static void on_meet_timer(void *arg)
{
    struct rendezvous_host *h = arg;
    const struct job *job = h->server ? registry_jobs(server_registry(h->server))
                                      : NULL;
    char text[RUN_ID_MAX + PROGRAM_MAX_BYTES + 64];

    if (!h->server || (job && job->membership.epoch > 0))
        return;
    if (port_holder_describe(&h->foreign, h->keys, MEET_WITHIN_MS, text, sizeof(text)))
        h->calls.elsewhere(h->calls.arg, h->config->endpoints);
    else
        loop_timer_arm(&h->meet, clock_ms() + MEET_MS);
}

/* A Service's address, NAT, or a published port of a container: other nodes reach this
 * one by an address that it does not know itself. Or the name is a mistake. */
static int host_at_foreign(struct rendezvous_host *h, const struct net_addr *foreign,
                           struct err *e)
{
    char address[NET_TEXT_SIZE], shown[HOST_NAME_MAX_BYTES + NET_TEXT_SIZE + 4],
        has[256];

    net_format_host(foreign, address, sizeof(address));
    if (strcmp(address, h->name) == 0)
        snprintf(shown, sizeof(shown), "%s", address);
    else
        snprintf(shown, sizeof(shown), "%s (%s)", h->name, address);
    net_list_own(has, sizeof(has));
    log_at(h->config->is_host == 1 ? LOG_INFO : LOG_WARN,
           "%s is not an address of this machine, which has %s: listening on all of "
           "them; the other nodes must reach port %u here by that address",
           shown, has, h->port_wanted);
    h->foreign = *foreign;
    loop_timer_init(&h->meet, h->loop, on_meet_timer, h);
    loop_timer_arm(&h->meet, clock_ms() + MEET_MS);
    return start_everywhere(h, e);
}

/* A dynamic rendezvous may have its host already: a crund, or another agent here. */
static int host_or_yield(struct rendezvous_host *h, int rc, struct err *e)
{
    if (rc == 0 || host_is_given(h))
        return rc;
    h->yields_until_ms = clock_ms() + YIELD_MS;
    log_debug("%s: another rendezvous seems to listen there", e->text);
    return 0;
}

int rendezvous_host_consider(struct rendezvous_host *h, const struct net_addr *list,
                             size_t count, const char *why, struct err *e)
{
    const struct net_addr *own = find_local_address(h, list, count);

    if (!h->undecided || h->server || clock_ms() < h->yields_until_ms)
        return 0;
    if (own)
        return host_or_yield(h, host_at(h, own, e), e);
    if (own_name_is(HOSTS_FILE, h->name) && (count == 0 || host_is_given(h))) {
        log_info("%s: taken for this machine by its name, listening on all addresses",
                 count == 0 ? why : h->name);
        if (host_or_yield(h, start_everywhere(h, e), e) < 0)
            return -1;
        if (h->server)
            name_check_begin(&h->check, h->loop, h->name, h->port_wanted);
        return 0;
    }
    if (count > 0 && host_is_given(h))
        return host_at_foreign(h, &list[0], e);
    if (count == 0 && h->config->is_host == 1)
        return start_everywhere(h, e);
    return 0;
}

static bool host_may_be_here(const struct config *config)
{
    if (config->rendezvous == CONFIG_STATIC && config->is_host < 0)
        return config->node_rank == 0;
    return config->is_host != 0;
}

int rendezvous_host_start(struct rendezvous_host *h, struct loop *loop,
                          const struct config *config, struct key_ring *keys,
                          const struct rendezvous_host_calls *calls, struct err *e)
{
    struct net_addr list[ADDRESSES_MAX];
    size_t count;

    *h = (struct rendezvous_host){
        .loop = loop, .config = config, .keys = keys, .calls = *calls
    };
    if (config->rendezvous == CONFIG_LOCAL)
        return start_server(h, &(struct net_addr){ .len = 0 }, e);
    if (!host_may_be_here(config))
        return 0;
    if (read_endpoint(h, config->endpoints, e) < 0)
        return host_is_given(h) ? err_wrap(e, config->rendezvous == CONFIG_STATIC
                                                  ? "--master-addr"
                                                  : "--rdzv-endpoint")
                                : 0; /* the client reports it */
    if (config->rendezvous_fd) /* on all addresses; the first endpoint is the best */
        return start_server(h, &(struct net_addr){ .len = 0 }, e);
    h->undecided = true;
    if (net_parse_host(h->name, h->port_wanted, &list[0], e) == 0)
        count = 1;
    else
        count = own_name_find(HOSTS_FILE, h->name, h->port_wanted, list, ADDRESSES_MAX);
    /* else the client looks the name up, which may take long */
    return count > 0 ? rendezvous_host_consider(h, list, count, "", e) : 0;
}

void rendezvous_host_found(struct rendezvous_host *h)
{
    name_check_end(&h->check);
}

uint16_t rendezvous_host_keep(struct rendezvous_host *h,
                              const struct server_standby *standby, const char *address,
                              struct err *e)
{
    struct server_config config = host_server_config(h);

    config.endpoints = h->config->endpoints;
    config.standby = *standby;
    server_destroy(h->standby);
    h->standby = NULL;
    if (h->server) {
        err_set(e, "this node hosts the rendezvous");
        return 0;
    }
    if (!h->port_wanted && read_endpoint(h, h->config->endpoints, e) < 0)
        return 0;
    for (int any = 0; any < 2 && !h->standby; any++)
        if (net_parse_host(address, any ? 0 : h->port_wanted, &config.listen, e) == 0)
            h->standby = server_create(h->loop, &config, e);
    if (!h->standby)
        return 0;
    snprintf(h->address, sizeof(h->address), "%s", address);
    return net_port(server_address(h->standby));
}

void rendezvous_host_move(struct rendezvous_host *h, bool here)
{
    struct server **from = here ? &h->standby : &h->server;
    struct server **to = here ? &h->server : &h->standby;

    if (!*from)
        return;
    *to = *from;
    *from = NULL;
    h->port = here ? net_port(server_address(h->server)) : 0;
}

void rendezvous_host_stop_keeping(struct rendezvous_host *h)
{
    server_destroy(h->standby);
    h->standby = NULL;
}

void rendezvous_host_end(struct rendezvous_host *h)
{
    h->undecided = false;
    rendezvous_host_stop_keeping(h);
    name_check_end(&h->check);
    loop_timer_fini(&h->meet);
    metrics_file_end(h->metrics);
    h->metrics = NULL;
    server_destroy(h->server);
    h->server = NULL;
}

bool rendezvous_host_is_done(const struct rendezvous_host *h,
                             const struct config *config)
{
    return !h->server || config->rendezvous == CONFIG_LOCAL ||
           registry_is_idle(server_registry(h->server));
}

bool rendezvous_host_must_stay(const struct rendezvous_host *h,
                               const struct config *config)
{
    if (rendezvous_host_is_done(h, config))
        return false;
    log_info("this node runs no more workers: it stays as the host of the rendezvous "
             "until the job ends");
    return true;
}

bool rendezvous_host_is_needed(const struct rendezvous_host *h)
{
    return h->standby && server_is_needed(h->standby);
}

bool rendezvous_host_may_leave(const struct rendezvous_host *h)
{
    const struct job *job = registry_jobs(server_registry(h->server));

    return server_is_kept(h->server) && job && job->membership.state == JOB_RUNNING &&
           job->membership.store_ready && job->membership.tally.leaving == 0;
}

bool rendezvous_host_job_runs(const struct rendezvous_host *h, bool with_enough)
{
    const struct job *job = registry_jobs(server_registry(h->server));
    const struct membership *m = job ? &job->membership : NULL;

    if (!m || m->state == JOB_DONE)
        return false;
    return !with_enough || m->state != JOB_FORMING ||
           m->tally.live - m->tally.leaving >= m->config.min_nodes;
}
