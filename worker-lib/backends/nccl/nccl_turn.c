/* SPDX-License-Identifier: MIT */
#include "worker-lib/backends/nccl/nccl_turn.h"

#include <pthread.h>
#include <stdlib.h>

struct nccl_line {
    struct nccl_line *next;
    int device;
    unsigned worlds;
    struct nccl_turn *first, *last;
    /* of the last launch */
    const void *launcher;
    struct gpu_event *launched;
    const void *user; /* the world whose launch waits for the event, if any */
};

static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;
static struct nccl_line *lines;

struct nccl_line *nccl_line_join(int device)
{
    struct nccl_line *line;

    pthread_mutex_lock(&lines_lock);
    for (line = lines; line && line->device != device; line = line->next)
        ;
    if (!line && (line = calloc(1, sizeof(*line)))) {
        line->device = device;
        line->next = lines;
        lines = line;
    }
    if (line)
        line->worlds++;
    pthread_mutex_unlock(&lines_lock);
    return line;
}

static void remove_line(struct nccl_line *line)
{
    struct nccl_line **at = &lines;

    while (*at != line)
        at = &(*at)->next;
    *at = line->next;
    free(line);
}

bool nccl_line_leave(struct nccl_line *line, const void *world)
{
    bool unused = true;

    pthread_mutex_lock(&lines_lock);
    if (line->launcher == world) {
        unused = !line->user;
        line->launcher = NULL;
        line->launched = NULL;
    }
    if (--line->worlds == 0)
        remove_line(line);
    pthread_mutex_unlock(&lines_lock);
    return unused;
}

bool nccl_line_forget(struct nccl_line *line, const struct gpu_event *launched)
{
    bool unused = true;

    pthread_mutex_lock(&lines_lock);
    if (line->launched == launched)
        unused = !line->user;
    if (line->launched == launched && unused)
        line->launched = NULL;
    pthread_mutex_unlock(&lines_lock);
    return unused;
}

void nccl_turn_take(struct nccl_line *line, struct nccl_turn *t)
{
    pthread_mutex_lock(&lines_lock);
    t->next = NULL;
    t->taken = true;
    if (line->last)
        line->last->next = t;
    else
        line->first = t;
    line->last = t;
    pthread_mutex_unlock(&lines_lock);
}

bool nccl_turn_has_come(struct nccl_line *line, const struct nccl_turn *t)
{
    bool come;

    pthread_mutex_lock(&lines_lock);
    come = line->first == t || !t->taken;
    pthread_mutex_unlock(&lines_lock);
    return come;
}

struct gpu_event *nccl_turn_previous(struct nccl_line *line, const struct nccl_turn *t,
                                     const void *world)
{
    struct gpu_event *event = NULL;

    pthread_mutex_lock(&lines_lock);
    if (t->taken && line->launched && line->launcher != world) {
        event = line->launched;
        line->user = world;
    }
    pthread_mutex_unlock(&lines_lock);
    return event;
}

/* Under the lock. */
static void remove_turn(struct nccl_line *line, struct nccl_turn *t)
{
    struct nccl_turn *before = NULL, **at = &line->first;

    while (*at != t) {
        before = *at;
        at = &before->next;
    }
    *at = t->next;
    if (line->last == t)
        line->last = before;
    t->taken = false;
}

void nccl_turn_give_back(struct nccl_line *line, struct nccl_turn *t, const void *world,
                         struct gpu_event *launched)
{
    pthread_mutex_lock(&lines_lock);
    if (t->taken) {
        remove_turn(line, t);
        if (line->user == world)
            line->user = NULL;
        if (launched) {
            line->launcher = world;
            line->launched = launched;
        }
    }
    pthread_mutex_unlock(&lines_lock);
}
