/* SPDX-License-Identifier: MIT */
/*
 * The other ranks of this node. NCCL does not report one that dies, so each rank writes
 * its pid to the store, and the watch of every other rank has a pidfd of it.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/proc.h"
#include "worker-lib/backends/nccl/backend_nccl.h"

#define TELL_MS 500

struct pid_note {
    int64_t pid;
    uint64_t pids; /* its namespace of processes */
    uint64_t started;
};

/* The start time of a process, in ticks since boot; 0: there is none. */
static uint64_t process_start(int64_t pid)
{
    struct proc_stat stat;

    return proc_read_stat((pid_t)pid, &stat) ? stat.started : 0;
}

static void pid_key(const struct nccl *n, unsigned place, char *key, size_t size)
{
    snprintf(key, size, "%snccl-pid/%u", n->team.prefix, place);
}

bool nccl_list_peers(struct nccl *n)
{
    const unsigned *node = n->team.node;

    n->peer = calloc(n->team.size, sizeof(*n->peer));
    if (!n->peer)
        return false;
    for (unsigned p = 0; p < n->team.size; p++)
        if (p != n->team.rank && node[p] == node[n->team.rank])
            n->peer[n->peers++] = (struct nccl_peer){ .place = p, .fd = -1 };
    return true;
}

crun_status nccl_tell_pid(const struct nccl *n, uint64_t deadline_ms, struct err *e)
{
    struct pid_note me = { .pid = getpid(),
                           .pids = proc_pid_namespace(),
                           .started = process_start(getpid()) };
    char key[440];

    if (n->team.size == 1)
        return CRUN_OK;
    pid_key(n, n->team.rank, key, sizeof(key));
    return store_client_set(n->team.store, key, &me, sizeof(me), deadline_ms, e);
}

void nccl_forget_pid(const struct nccl *n)
{
    char key[440];
    struct err ignored;

    if (n->team.size == 1)
        return;
    pid_key(n, n->team.rank, key, sizeof(key));
    (void)!store_client_delete(n->team.store, key, clock_ms() + TELL_MS, &ignored);
}

void nccl_close_peers(struct nccl *n)
{
    for (unsigned i = 0; i < n->peers; i++)
        if (n->peer[i].fd >= 0)
            close(n->peer[i].fd);
    free(n->peer);
    n->peer = NULL;
    n->peers = 0;
}

void nccl_lose_peer(struct nccl *n, unsigned i)
{
    unsigned none = 0;

    if (atomic_compare_exchange_strong(&n->lost, &none, i + 1))
        n->lost_ms = clock_ms();
}

/* The threads of a test are ranks of one process. */
static void open_peer(struct nccl *n, unsigned i, const struct pid_note *note)
{
    struct nccl_peer *p = &n->peer[i];

    p->known = true;
    p->pid = (int)note->pid;
    if (note->pids != proc_pid_namespace() || note->pid == getpid())
        return;
    p->fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    if ((p->fd < 0 && errno == ESRCH) || process_start(p->pid) != note->started)
        nccl_lose_peer(n, i);
}

/* Each rank writes its pid to the store when it opens the backend. */
void nccl_read_pids(struct nccl *n)
{
    for (unsigned i = 0; i < n->peers; i++) {
        struct pid_note note;
        size_t size = sizeof(note);
        uint64_t until = clock_ms() + TELL_MS;
        char key[440];
        struct err e;

        if (n->peer[i].known)
            continue;
        pid_key(n, n->peer[i].place, key, sizeof(key));
        if (store_client_has(n->team.store, key, until) == 1 &&
            store_client_get(n->team.store, key, &note, &size, until, &e) == CRUN_OK &&
            size == sizeof(note) && note.pid > 0 && note.pid <= INT_MAX)
            open_peer(n, i, &note);
    }
}
