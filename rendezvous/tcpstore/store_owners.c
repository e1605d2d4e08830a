/* SPDX-License-Identifier: MIT */
#include "rendezvous/tcpstore/store_owners.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rendezvous/common/base/xalloc.h"

/* The number of a question is that of its slot and of the slot's use, so that a late
 * answer never counts for another connection. */
struct owner_slot {
    void *conn; /* NULL: free */
    uint32_t use;
    uint32_t next_free;
};

struct owner_answer {
    uint64_t number;
    const char *why;
};

struct store_owners {
    struct owner_slot *slot; /* of the store's thread */
    uint32_t slots, first_free;

    int wake;
    pthread_mutex_t lock; /* what follows */
    struct store_question *question;
    size_t questions, first, question_cap;
    struct owner_answer *answer;
    size_t answers, answer_cap;
};

struct store_owners *store_owners_create(void)
{
    int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct store_owners *o;

    if (wake < 0)
        return NULL;
    o = xcalloc(1, sizeof(*o));
    o->wake = wake;
    pthread_mutex_init(&o->lock, NULL);
    return o;
}

void store_owners_destroy(struct store_owners *o)
{
    if (!o)
        return;
    free(o->slot);
    free(o->question);
    free(o->answer);
    close(o->wake);
    pthread_mutex_destroy(&o->lock);
    free(o);
}

static uint32_t take_free_slot(struct store_owners *o)
{
    uint32_t i = o->first_free;

    if (i == o->slots) {
        uint32_t slots = o->slots ? 2 * o->slots : 16;

        o->slot = xrealloc(o->slot, slots * sizeof(*o->slot));
        for (; o->slots < slots; o->slots++)
            o->slot[o->slots] = (struct owner_slot){ .next_free = o->slots + 1 };
    }
    o->first_free = o->slot[i].next_free;
    return i;
}

static struct owner_slot *slot_of(struct store_owners *o, uint64_t number)
{
    uint32_t i = (uint32_t)number;

    if (i >= o->slots || !o->slot[i].conn || o->slot[i].use != number >> 32)
        return NULL;
    return &o->slot[i];
}

uint64_t store_owners_hold(struct store_owners *o, void *conn,
                           const struct net_addr *client, const struct net_addr *store)
{
    uint32_t i = take_free_slot(o);
    uint64_t number, one = 1;

    o->slot[i].conn = conn;
    number = (uint64_t)++o->slot[i].use << 32 | i;
    pthread_mutex_lock(&o->lock);
    if (o->questions == o->question_cap) {
        o->question_cap = o->question_cap ? 2 * o->question_cap : 16;
        o->question = xrealloc(o->question, o->question_cap * sizeof(*o->question));
    }
    o->question[o->questions++] = (struct store_question){ number, *client, *store };
    pthread_mutex_unlock(&o->lock);
    while (write(o->wake, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    return number;
}

void store_owners_forget(struct store_owners *o, uint64_t number)
{
    struct owner_slot *slot = slot_of(o, number);

    if (!slot)
        return;
    slot->conn = NULL;
    slot->next_free = o->first_free;
    o->first_free = (uint32_t)(slot - o->slot);
}

void store_owners_take_answers(struct store_owners *o,
                               void (*fn)(void *arg, void *conn, const char *why),
                               void *arg)
{
    struct owner_answer *answer;
    size_t count;

    pthread_mutex_lock(&o->lock);
    answer = o->answer;
    count = o->answers;
    o->answer = NULL;
    o->answers = o->answer_cap = 0;
    pthread_mutex_unlock(&o->lock);
    for (size_t i = 0; i < count; i++) {
        struct owner_slot *slot = slot_of(o, answer[i].number);
        void *conn = slot ? slot->conn : NULL;

        store_owners_forget(o, answer[i].number);
        if (conn)
            fn(arg, conn, answer[i].why);
    }
    free(answer);
}

int store_owners_fd(const struct store_owners *o)
{
    return o->wake;
}

size_t store_owners_take_questions(struct store_owners *o, struct store_question *out,
                                   size_t max)
{
    uint64_t ignored;
    size_t count;

    while (read(o->wake, &ignored, sizeof(ignored)) < 0 && errno == EINTR)
        ;
    pthread_mutex_lock(&o->lock);
    count = o->questions - o->first;
    if (count > max)
        count = max;
    if (count > 0)
        memcpy(out, o->question + o->first, count * sizeof(*out));
    o->first += count;
    if (o->first == o->questions)
        o->first = o->questions = 0;
    pthread_mutex_unlock(&o->lock);
    return count;
}

void store_owners_answer(struct store_owners *o, uint64_t number, const char *why)
{
    pthread_mutex_lock(&o->lock);
    if (o->answers == o->answer_cap) {
        o->answer_cap = o->answer_cap ? 2 * o->answer_cap : 16;
        o->answer = xrealloc(o->answer, o->answer_cap * sizeof(*o->answer));
    }
    o->answer[o->answers++] = (struct owner_answer){ number, why };
    pthread_mutex_unlock(&o->lock);
}
