/* SPDX-License-Identifier: MIT */
/* The rendezvous of the job in this process: it comes here, moves elsewhere, or is
 * given up for one that has the job already. */
#include "agent/agent_internal.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"

static void on_store_client(void *arg, int fd)
{
    epoch_store_adopt(&((struct agent *)arg)->store, fd);
}

void agent_on_fatal(void *arg, const char *why)
{
    struct agent *a = arg;

    log_error("%s", why);
    a->exit_code = EX_SOFTWARE;
    loop_stop(a->loop);
}

/* The node that hosts the rendezvous cannot leave before the others, if none of them
 * could go on with it. */
void agent_note_host(struct agent *a)
{
    a->has_hosted |= a->rendezvous.server != NULL;
    a->signals.cannot_leave = a->rendezvous.server && !a->has_keepers;
    a->signals.all_are_preempted = a->rendezvous.server && a->config->under_slurm;
    a->suspension.hosts_rendezvous = a->rendezvous.server != NULL;
}

/* The rendezvous of the job is in this process from now on, or (false) elsewhere. */
static void on_moved(void *arg, bool here)
{
    struct agent *a = arg;

    rendezvous_host_move(&a->rendezvous, here);
    agent_note_host(a);
    if (here)
        client_look_again(a->client);
    else
        client_leave_server(a->client, a->config->endpoints);
}

static void on_given_up(void *arg, bool claimed)
{
    struct agent *a = arg;

    a->is_left_behind = claimed;
    client_give_up_keepers(a->client);
}

void agent_join_elsewhere(void *arg, const char *endpoints)
{
    struct agent *a = arg;

    free(a->elsewhere);
    a->elsewhere = xstrdup(endpoints);
    loop_timer_arm(&a->leave_timer, clock_ms());
}

static void on_leave_timer(void *arg)
{
    struct agent *a = arg;
    struct err e;

    log_info("job \"%s\" runs already: this node joins it at %.*s", a->config->run_id,
             (int)strcspn(a->elsewhere, ","), a->elsewhere);
    client_destroy(a->client);
    rendezvous_host_end(&a->rendezvous);
    agent_note_host(a);
    if (agent_join_job(a, "", &e) < 0)
        agent_on_fatal(a, e.text);
}

int agent_open_rendezvous(struct agent *a, struct err *e)
{
    struct rendezvous_host_calls calls = { .store_client = on_store_client,
                                           .event = agent_note_host_event,
                                           .fatal = agent_on_fatal,
                                           .elsewhere = agent_join_elsewhere,
                                           .moved = on_moved,
                                           .given_up = on_given_up,
                                           .arg = a };

    loop_timer_init(&a->leave_timer, a->loop, on_leave_timer, a);
    if (rendezvous_host_start(&a->rendezvous, a->loop, a->config, a->keys, &calls, e) <
        0)
        return -1;
    agent_note_host(a);
    return 0;
}
