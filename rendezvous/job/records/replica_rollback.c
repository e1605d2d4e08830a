/* SPDX-License-Identifier: MIT */
#ifdef CRUN_RAFT
#include <stdlib.h>

#include "rendezvous/job/records/replica_internal.h"

/*
 * A change of the list that another leader's entries replace is taken back. Before 0.17
 * the library looks for the list before it in the log; where a snapshot has replaced
 * that entry, it reads at NULL. So the last list that lasted is kept here, and put back
 * before the library sees these entries.
 */
#ifndef RAFT_VERSION_NUMBER

static bool log_has(const struct raft *raft, raft_index index)
{
    return index > raft->log.offset && index <= raft_last_index((struct raft *)raft);
}

/* 0: it is not known. */
static raft_term log_term(const struct raft *raft, raft_index index)
{
    const struct raft_log *l = &raft->log;

    if (log_has(raft, index))
        return l->entries[(l->front + index - l->offset - 1) % l->size].term;
    return index == l->snapshot.last_index ? l->snapshot.last_term : 0;
}

/* As the library does it: these entries follow one that is here, and one of them is of
 * another term than the one that is here in its place. */
static bool replaces_change(const struct raft *raft,
                            const struct raft_append_entries *a)
{
    raft_index index = a->prev_log_index;
    raft_term term = log_term(raft, index);

    if (a->term < raft->current_term || (index > 0 && term != a->prev_log_term))
        return false;
    for (unsigned i = 0; i < a->n_entries; i++) {
        if (++index > raft->configuration_uncommitted_index)
            return false;
        term = log_term(raft, index);
        if (term > 0 && term != a->entries[i].term)
            return true;
    }
    return false;
}

static void copy_list(const struct raft_configuration *from,
                      struct raft_configuration *to)
{
    raft_configuration_close(to);
    raft_configuration_init(to);
    for (unsigned i = 0; i < from->n; i++) {
        const struct raft_server *s = &from->servers[i];

        if (raft_configuration_add(to, s->id, s->address, s->role) != 0)
            abort();
    }
}

void replica_note_lasting_list(struct replica *r)
{
    if (r->raft.configuration_uncommitted_index > 0 ||
        r->raft.configuration_index == r->list_index)
        return;
    copy_list(&r->raft.configuration, &r->list);
    r->list_index = r->raft.configuration_index;
}

void replica_take_back_list(struct replica *r, const struct raft_append_entries *a)
{
    struct raft *raft = &r->raft;

    if (raft->configuration_uncommitted_index == 0 ||
        log_has(raft, raft->configuration_index) ||
        raft->configuration_index != r->list_index || !replaces_change(raft, a))
        return;
    copy_list(&r->list, &raft->configuration);
    raft->configuration_uncommitted_index = 0;
}
#else
void replica_note_lasting_list(struct replica *r)
{
}

void replica_take_back_list(struct replica *r, const struct raft_append_entries *a)
{
}
#endif
#endif
