/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/environment/scheduler_sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Kubernetes and clouds. */

int indexed_job_read(struct scheduler_reading *r)
{
    snprintf(r->n->missing_nodes, sizeof(r->n->missing_nodes),
             "JOB_COMPLETION_INDEX is set, but an Indexed Job does not say how many "
             "pods it has: --nnodes does (1, if each pod trains by itself)");
    return 0;
}

/* The coordinator's port is the pod's, which crun takes for its rendezvous. */
int kubeflow_jax_read(struct scheduler_reading *r)
{
    const char *address = reading_value(r, "JAX_COORDINATOR_ADDRESS");
    const char *colon = strrchr(address, ':');
    size_t length = colon ? (size_t)(colon - address) : 0;
    char *end = NULL;
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;

    if (length == 0 || length > HOST_NAME_MAX_BYTES || !end || *end || port < 1 ||
        port > UINT16_MAX)
        return err_set(r->e, "JAX_COORDINATOR_ADDRESS is \"%.64s\", not HOST:PORT",
                       address);
    memcpy(r->n->host, address, length);
    r->n->host[length] = '\0';
    r->n->port = (uint16_t)port;
    return 0;
}

int sagemaker_read(struct scheduler_reading *r)
{
    const char *hosts = reading_value(r, "SM_HOSTS");
    const char *own = reading_value(r, "SM_CURRENT_HOST");
    char *names = strdup(hosts);
    struct host_list l;
    int rc;

    if (!names)
        return err_set(r->e, "out of memory");
    /* a JSON list of names */
    for (char *c = names; *c; c++)
        if (strchr("[]\"", *c))
            *c = ' ';
    rc = reading_expand_hosts(r, "SM_HOSTS", names, &l);
    free(names);
    if (rc < 0)
        return -1;
    r->n->nodes = (uint32_t)l.count;
    r->n->rank = (int32_t)host_list_find(&l, own);
    scheduler_node_set_host(r->n, &l);
    host_list_clear(&l);
    return r->n->rank < 0 ? err_set(r->e,
                                    "SM_CURRENT_HOST is \"%.64s\", which is none "
                                    "of SM_HOSTS=%.200s",
                                    own, hosts)
                          : 0;
}

/* The entry "VC_<TASK>_HOSTS=..." after *at; NULL: there is no other. */
static const char *volcano_next_list(const char *const **at)
{
    for (; **at; ++*at) {
        size_t name = strcspn(**at, "=");

        if (strncmp(**at, "VC_", 3) == 0 && name > 9 && (**at)[name] &&
            (**at)[name + 1] && strncmp(**at + name - 6, "_HOSTS", 6) == 0)
            return *(*at)++;
    }
    return NULL;
}

int volcano_read(struct scheduler_reading *r)
{
    const char *const *at = r->env->variables;
    const char *list = volcano_next_list(&at), *second;
    char name[SCHEDULER_TEXT_SIZE];
    struct host_list l;

    if (!list) {
        snprintf(r->n->missing_nodes, sizeof(r->n->missing_nodes),
                 "VC_<TASK>_HOSTS, the list of the job's hosts, is not set");
        return 0;
    }
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(list, "="), list);
    second = volcano_next_list(&at);
    if (second) {
        snprintf(r->n->missing_nodes, sizeof(r->n->missing_nodes),
                 "%s and %.*s are both set, and do not say in which order", name,
                 (int)strcspn(second, "="), second);
        r->n->rank = -1;
        snprintf(r->n->missing_rank, sizeof(r->n->missing_rank), "%s",
                 r->n->missing_nodes);
        return 0;
    }
    (void)reading_value(r, name);
    if (reading_expand_hosts(r, name, strchr(list, '=') + 1, &l) < 0)
        return -1;
    r->n->nodes = (uint32_t)l.count;
    scheduler_node_set_host(r->n, &l);
    host_list_clear(&l);
    return 0;
}
