/* SPDX-License-Identifier: MIT */
/*
 * A job of one node without an address has its rendezvous in its own process. Any other
 * rendezvous is static (node rank 0 hosts it at --master-addr) or dynamic (the node
 * that has the address of --rdzv-endpoint hosts it).
 */
#include "launcher/plan/rendezvous_address.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

#define STATIC_PORT 29500
#define DYNAMIC_PORT 29400
#define DEFAULT_HOST "127.0.0.1"
#define ENDPOINT_SIZE (HOST_NAME_MAX_BYTES + 16)

/* "HOST:PORT" into endpoint; text without a port gets the default port, and a port
 * alone is one of this machine. */
static int complete_endpoint(const char *text, uint16_t default_port, char *endpoint,
                             uint16_t *port, struct err *e)
{
    char host[HOST_NAME_MAX_BYTES + 1];

    if (net_split(text, default_port, host, sizeof(host), port, e) < 0)
        return -1;
    if (net_is_port(text))
        snprintf(host, sizeof(host), DEFAULT_HOST);
    if (!*host)
        return err_set(e, "\"%s\" names no host", text);
    snprintf(endpoint, ENDPOINT_SIZE, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host,
             *port);
    return 0;
}

/* The same for each item of --rdzv-endpoint. *any_port: an item has port 0. */
static int complete_endpoints(const char *list, uint16_t default_port, char **endpoints,
                              bool *any_port, struct err *e)
{
    char *copy = xstrdup(list), *rest = copy, *text, one[ENDPOINT_SIZE];
    int rc = 0;

    *endpoints = NULL;
    *any_port = false;
    while (rc == 0 && (text = strsep(&rest, ",")) != NULL) {
        char *before = *endpoints;
        uint16_t port;

        rc = complete_endpoint(text, default_port, one, &port, e);
        if (rc < 0)
            break;
        *any_port |= port == 0;
        *endpoints = xasprintf("%s%s%s", before ? before : "", before ? "," : "", one);
        free(before);
    }
    free(copy);
    if (rc == 0)
        return 0;
    free(*endpoints);
    *endpoints = NULL;
    return err_wrap(e, "--rdzv-endpoint");
}

static uint16_t master_port(const struct options *o)
{
    return o->master_port < 0 ? STATIC_PORT : (uint16_t)o->master_port;
}

static int use_master_address(const struct options *o, struct config *c, struct err *e)
{
    const char *host = o->master_addr ? o->master_addr : DEFAULT_HOST;
    char endpoint[ENDPOINT_SIZE];
    uint16_t port;

    if (net_is_port(host))
        return err_set(e,
                       "--master-addr: \"%s\" is not an address; a port is given by "
                       "--master-port",
                       host);
    if (complete_endpoint(host, master_port(o), endpoint, &port, e) < 0)
        return err_wrap(e, "--master-addr");
    if (port != master_port(o))
        return err_set(e, "--master-addr: \"%s\" has a port, which is --master-port's",
                       host);
    if (port == 0 && o->config.job.max_nodes > 1)
        return err_set(e, "--master-port: 0, any port, is for one node only: other "
                          "nodes could not find it");
    c->endpoints = xstrdup(endpoint);
    return 0;
}

static int use_endpoints(const struct options *o, uint16_t default_port,
                         struct config *c, struct err *e)
{
    const char *text = o->endpoint ? o->endpoint : DEFAULT_HOST;
    char *endpoints;
    bool any_port;

    if (complete_endpoints(text, default_port, &endpoints, &any_port, e) < 0)
        return -1;
    c->endpoints = endpoints;
    if (any_port && o->config.job.max_nodes > 1)
        return err_set(e, "--rdzv-endpoint: port 0, any port, is for one node only: "
                          "other nodes could not find it");
    return 0;
}

static bool is_static(const struct options *o)
{
    if (o->backend != BACKEND_NOT_GIVEN)
        return o->backend == BACKEND_STATIC;
    /* an endpoint without a node rank can only be dynamic */
    return !o->endpoint || o->config.node_rank >= 0;
}

/* One node whose rendezvous no other node has to find. */
static bool is_local(const struct options *o)
{
    if (o->standalone)
        return true;
    if (o->config.job.max_nodes > 1)
        return false;
    if (o->endpoint)
        return strcmp(o->endpoint, "localhost:0") == 0 ||
               strcmp(o->endpoint, DEFAULT_HOST ":0") == 0;
    return !is_static(o) || o->master_port < 0 || !o->master_addr ||
           (strcmp(o->master_addr, DEFAULT_HOST) == 0 ||
            strcmp(o->master_addr, "localhost") == 0);
}

static int check_node_rank(const struct options *o, struct err *e)
{
    if (o->standalone && o->config.job.min_nodes > 1)
        return err_set(e, "--standalone is for one node, and --nnodes is %u",
                       o->config.job.min_nodes);
    if (o->config.node_rank >= (int32_t)o->config.job.max_nodes)
        return err_set(
            e, "--node-rank: %d is above the highest rank of %u node%s (--nnodes), %u",
            o->config.node_rank, o->config.job.max_nodes,
            text_plural(o->config.job.max_nodes), o->config.job.max_nodes - 1);
    return 0;
}

static void use_local(const struct options *o, struct config *c)
{
    c->rendezvous = CONFIG_LOCAL;
    if (o->standalone || o->endpoint || !is_static(o) || o->master_port < 0)
        return;
    /* a given port is MASTER_PORT, as with torchrun */
    if (!c->store_port)
        c->store_port = (uint16_t)o->master_port;
    if (!c->local_addr)
        c->local_addr = o->master_addr;
}

int rendezvous_address_find(const struct options *o, struct config *c, struct err *e)
{
    if (check_node_rank(o, e) < 0)
        return -1;
    if (is_local(o)) {
        use_local(o, c);
        return 0;
    }
    c->is_host = o->conf.is_host;
    if (!is_static(o)) {
        c->rendezvous = CONFIG_DYNAMIC;
        return use_endpoints(o, DYNAMIC_PORT, c, e);
    }
    c->rendezvous = CONFIG_STATIC;
    if (c->node_rank < 0)
        c->node_rank = 0;
    return o->endpoint ? use_endpoints(o, master_port(o), c, e)
                       : use_master_address(o, c, e);
}
