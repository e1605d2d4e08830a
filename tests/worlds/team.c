/* SPDX-License-Identifier: MIT */
#include "tests/worlds/team.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/store_server/store_server.h"

struct session_identity {
    const struct team_plan *plan;
    uint16_t port;
    struct team_member member;
};

static void *live(void *arg)
{
    struct session_identity *p = arg;
    struct team_member *m = &p->member;
    unsigned open_ms = p->plan->open_ms ? p->plan->open_ms : TEAM_DEADLINE_MS;

    ck_assert_int_eq(store_client_open(&m->team.store, "127.0.0.1", p->port,
                                       clock_ms() + TEAM_DEADLINE_MS, &m->e),
                     CRUN_OK);
    m->opened = m->calls->open(&m->backend, &m->team, clock_ms() + open_ms, &m->e);
    ck_assert_msg(m->opened == CRUN_OK || p->plan->may_not_open, "rank %u: %s",
                  m->team.rank, m->e.text);
    p->plan->body(m);
    if (m->opened == CRUN_OK && m->backend)
        m->calls->close(m->backend);
    store_client_close(m->team.store);
    return NULL;
}

void team_run(const struct team_plan *plan)
{
    struct net_addr here;
    size_t count;
    struct err e;
    struct store_server *server;
    struct session_identity *place = xcalloc(plan->size, sizeof(*place));
    pthread_t *thread = xcalloc(plan->size, sizeof(*thread));
    unsigned *numbers = xcalloc(plan->size, sizeof(*numbers));
    unsigned *zeros = xcalloc(plan->size, sizeof(*zeros));

    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &here, 1, &count, &e), 0);
    server = store_server_create(&(struct store_server_config){ .listen = &here }, &e);
    ck_assert_msg(server != NULL, "%s", e.text);
    for (unsigned r = 0; r < plan->size; r++)
        numbers[r] = r;
    for (unsigned r = 0; r < plan->size; r++) {
        place[r].plan = plan;
        place[r].port = store_server_port(server);
        place[r].member.calls = plan->calls;
        place[r].member.arg = plan->arg;
        place[r].member.team = (struct team){ .rank = r,
                                              .size = plan->size,
                                              .local_rank = r,
                                              .local_size = plan->size,
                                              .world_rank = numbers,
                                              .node = plan->node ? plan->node : zeros,
                                              .prefix = "team",
                                              .aborted = &place[r].member.aborted,
                                              .address = "127.0.0.1" };
        ck_assert_int_eq(pthread_create(&thread[r], NULL, live, &place[r]), 0);
    }
    for (unsigned r = 0; r < plan->size; r++)
        pthread_join(thread[r], NULL);
    store_server_destroy(server);
    free(place);
    free(thread);
    free(numbers);
    free(zeros);
}

crun_status session_run(struct team_member *m, struct op op)
{
    op.deadline_ms = clock_ms() + TEAM_DEADLINE_MS;
    op.sequence = ++m->sequence;
    return m->backend->calls->run(m->backend, &op, &m->e);
}
