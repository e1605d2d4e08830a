/* SPDX-License-Identifier: MIT */
#include "worker-lib/backends/tcp/tcp_meeting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESSES_MAX 8
#define KEY_SIZE 512

static const char *meeting_key(const struct meeting *m, const char *name, unsigned rank,
                               char text[KEY_SIZE])
{
    snprintf(text, KEY_SIZE, "%stcp/%s/%u", m->team->prefix, name, rank);
    return text;
}

/* Whether the address is not one of this machine's, but that of a container's host. */
static int listen_anywhere(struct net_addr *addr, struct err *e)
{
    struct net_addr any[ADDRESSES_MAX], bound;
    size_t count;
    int fd = -1;

    if (net_resolve("", 0, any, ADDRESSES_MAX, &count, e) < 0)
        return -1;
    for (size_t i = 0; i < count && fd < 0; i++)
        fd = net_listen(&any[i], SOMAXCONN, e);
    if (fd >= 0 && net_local_addr(fd, &bound) == 0)
        net_set_port(addr, net_port(&bound));
    return fd;
}

/* Writes the address at which other ranks reach this one to address[rank]. */
crun_status tcp_listen(struct meeting *m)
{
    const char *host = m->team->address ? m->team->address : "127.0.0.1";
    struct net_addr list[ADDRESSES_MAX];
    size_t count;

    if (net_resolve(host, 0, list, ADDRESSES_MAX, &count, m->e) < 0)
        return CRUN_SYSTEM;
    for (size_t i = 0; i < count && m->listener < 0; i++) {
        m->listener = net_listen(&list[i], SOMAXCONN, m->e);
        if (m->listener >= 0)
            (void)net_local_addr(m->listener, &list[0]);
    }
    if (m->listener < 0)
        m->listener = listen_anywhere(&list[0], m->e);
    if (m->listener < 0)
        return CRUN_SYSTEM;
    net_format(&list[0], m->address[m->team->rank], ADDRESS_SIZE);
    return CRUN_OK;
}

static crun_status gather_addresses(struct meeting *m, uint8_t *list, size_t size)
{
    const struct team *team = m->team;
    char name[KEY_SIZE];

    m->number = id128_random();
    for (unsigned p = 1; p < team->size; p++) {
        size_t room = ADDRESS_SIZE - 1;
        crun_status status = failure_notice_await_key(
            team->board, meeting_key(m, "at", p, name), m->address[p], &room,
            m->deadline_ms, m->e);

        if (status != CRUN_OK) {
            if (status == CRUN_TIMEOUT)
                err_wrap(m->e, "waiting for rank %u to publish its address",
                         team->world_rank[p]);
            return status;
        }
        m->address[p][room] = '\0';
    }
    memcpy(list, &m->number, sizeof(m->number));
    memcpy(list + sizeof(m->number), m->address, size - sizeof(m->number));
    return store_client_set(team->store, meeting_key(m, "all", 0, name), list, size,
                            m->deadline_ms, m->e);
}

static crun_status learn_addresses(struct meeting *m, uint8_t *list, size_t size)
{
    const struct team *team = m->team;
    char name[KEY_SIZE], own[ADDRESS_SIZE];
    size_t room = size;
    crun_status status;

    memcpy(own, m->address[team->rank], sizeof(own));
    status = store_client_set(team->store, meeting_key(m, "at", team->rank, name), own,
                              strlen(own), m->deadline_ms, m->e);

    if (status != CRUN_OK)
        return status;
    status = failure_notice_await_key(team->board, meeting_key(m, "all", 0, name), list,
                                      &room, m->deadline_ms, m->e);
    if (status != CRUN_OK) {
        if (status == CRUN_TIMEOUT)
            err_wrap(m->e, "waiting for rank %u to publish the addresses of all ranks",
                     team->world_rank[0]);
        return status;
    }
    if (room != size) {
        err_set(m->e, "rank %u has a different number of ranks", team->world_rank[0]);
        return CRUN_MISMATCH;
    }
    memcpy(&m->number, list, sizeof(m->number));
    memcpy(m->address, list + sizeof(m->number), size - sizeof(m->number));
    for (unsigned p = 0; p < team->size; p++)
        m->address[p][ADDRESS_SIZE - 1] = '\0';
    if (strcmp(m->address[team->rank], own) == 0)
        return CRUN_OK;
    err_set(m->e, "rank %u has published another address for rank %u than %s",
            team->world_rank[0], team->world_rank[team->rank], own);
    return CRUN_MISMATCH;
}

crun_status tcp_exchange_addresses(struct meeting *m)
{
    size_t size = sizeof(m->number) + (size_t)m->team->size * ADDRESS_SIZE;
    uint8_t *list = malloc(size);
    crun_status status;

    if (!list) {
        err_set(m->e, "no memory for the addresses of %u ranks", m->team->size);
        return CRUN_NO_MEMORY;
    }
    status = m->team->rank == 0 ? gather_addresses(m, list, size)
                                : learn_addresses(m, list, size);
    free(list);
    return status;
}

void tcp_delete_addresses(const struct meeting *m)
{
    unsigned rank = m->team->rank;
    char name[KEY_SIZE];
    struct err ignored;

    meeting_key(m, rank == 0 ? "all" : "at", rank, name);
    (void)!store_client_delete(m->team->store, name, m->deadline_ms, &ignored);
}
