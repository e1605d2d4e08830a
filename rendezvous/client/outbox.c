/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/outbox.h"

#include <stdlib.h>

#include "rendezvous/common/base/xalloc.h"

struct outbox_entry {
    struct outbox_entry *next;
    struct msg msg;
};

void outbox_init(struct outbox *o)
{
    *o = (struct outbox){ .last = &o->first };
}

void outbox_clear(struct outbox *o)
{
    while (o->first)
        outbox_settle(o, o->first->msg.sequence);
}

struct msg *outbox_add(struct outbox *o, const struct msg *msg)
{
    struct outbox_entry *entry = xmalloc(sizeof(*entry));

    entry->msg = *msg;
    entry->msg.sequence = ++o->sequence;
    entry->next = NULL;
    *o->last = entry;
    o->last = &entry->next;
    o->count++;
    return &entry->msg;
}

bool outbox_has(const struct outbox *o, uint64_t sequence)
{
    const struct outbox_entry *entry = o->first;

    while (entry && entry->msg.sequence != sequence)
        entry = entry->next;
    return entry != NULL;
}

struct msg *outbox_find_type(const struct outbox *o, enum msg_type type)
{
    struct outbox_entry *entry = o->first;

    while (entry && entry->msg.type != type)
        entry = entry->next;
    return entry ? &entry->msg : NULL;
}

void outbox_settle(struct outbox *o, uint64_t sequence)
{
    struct outbox_entry **at = &o->first, *entry;

    while (*at && (*at)->msg.sequence != sequence)
        at = &(*at)->next;
    entry = *at;
    if (!entry)
        return;
    *at = entry->next;
    if (!*at)
        o->last = at;
    o->count--;
    free(entry);
}

void outbox_each(struct outbox *o, void (*fn)(void *arg, struct msg *msg), void *arg)
{
    for (struct outbox_entry *entry = o->first; entry; entry = entry->next)
        fn(arg, &entry->msg);
}
