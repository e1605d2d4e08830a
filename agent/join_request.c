/* SPDX-License-Identifier: MIT */
#include "agent/join_request.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/wire/protocol/own_build.h"
#include "rendezvous/wire/protocol/proto.h"

void join_request_fill(struct client_config *cc, const struct config *config,
                       struct server *local, const char *host, const char *containment)
{
    struct msg_join *join = &cc->session.join;

    *cc = (struct client_config){ .endpoints = local ? NULL : config->endpoints,
                                  .of_one = config->rendezvous == CONFIG_STATIC,
                                  .rendezvous_user = config->rendezvous_user,
                                  .local = local };
    memcpy(join->run_id, config->run_id, sizeof(join->run_id));
    join->incarnation = id128_random();
    snprintf(join->host, sizeof(join->host), "%s", host);
    snprintf(join->address, sizeof(join->address), "%s",
             config->local_addr ? config->local_addr : "");
    snprintf(join->containment, sizeof(join->containment), "%s", containment);
    snprintf(join->role, sizeof(join->role), "%s", config->role);
    join->pid = (uint32_t)getpid();
    join->workers = config->workers;
    join->node_rank = config->node_rank;
    join->config = config->job;
    cc->session.connect_for_ms = config->job.join_timeout_ms;
    cc->session.outage_grace_ms = config->outage_grace_ms;
    cc->session.strict_fence = config->job.strict_fence;
    memcpy(&cc->session.seed, join->incarnation.byte, sizeof(cc->session.seed));
    cc->session.software = own_build_crun;
}

void join_request_host_name(char *host, size_t size)
{
    if (gethostname(host, size) < 0 || !*host)
        snprintf(host, size, "localhost");
    host[size - 1] = '\0';
    for (char *c = host; *c; c++)
        if (!proto_is_name((const char[]){ *c, '\0' }))
            *c = '_';
}
