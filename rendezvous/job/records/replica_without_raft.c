/* SPDX-License-Identifier: MIT */
/* Without libraft a rendezvous has one copy. */
#ifndef CRUN_RAFT
#include "rendezvous/job/records/replica.h"

bool replica_is_built(void)
{
    return false;
}

struct replica *replica_create(const struct replica_config *config, uint64_t now_ms,
                               struct err *e)
{
    err_set(e, "this build has no libraft");
    return NULL;
}

uint64_t replica_id(const struct replica *r)
{
    return 0;
}

uint64_t replica_last(const struct replica *r)
{
    return 0;
}

const char *replica_error(const struct replica *r)
{
    return NULL;
}

bool replica_has_lost(struct replica *r, uint64_t id, uint64_t last)
{
    return false;
}

void replica_destroy(struct replica *r)
{
}

void replica_tick(struct replica *r, uint64_t now_ms)
{
}

uint64_t replica_next_tick(const struct replica *r)
{
    return UINT64_MAX;
}

void replica_receive(struct replica *r, const void *data, size_t size, uint64_t now_ms)
{
}

void replica_note_gone(struct replica *r, uint64_t id, uint64_t now_ms)
{
}

bool replica_leads(const struct replica *r)
{
    return false;
}

uint64_t replica_leader(const struct replica *r)
{
    return 0;
}

uint64_t replica_term(const struct replica *r)
{
    return 0;
}

void replica_propose(struct replica *r, const void *data, size_t size, uint64_t now_ms)
{
}

bool replica_is_heard(const struct replica *r, uint64_t now_ms)
{
    return false;
}

bool replica_is_settled(const struct replica *r, uint64_t now_ms)
{
    return false;
}

const uint8_t *replica_records(const struct replica *r, size_t *size)
{
    *size = 0;
    return NULL;
}

void replica_keep_compact(struct replica *r, const void *records, size_t size)
{
}

bool replica_is_changing(const struct replica *r)
{
    return false;
}

bool replica_is_needed(const struct replica *r)
{
    return false;
}

bool replica_pair(const struct replica *r, struct replica_pair *p)
{
    return false;
}

void replica_go_on_alone(struct replica *r, uint64_t now_ms)
{
}

unsigned replica_count(const struct replica *r)
{
    return 0;
}

void replica_show(const struct replica *r, unsigned at, struct replica_member *m)
{
}

int replica_add(struct replica *r, uint64_t id, const char *address, uint64_t now_ms)
{
    return -1;
}

int replica_set_vote(struct replica *r, uint64_t id, bool votes, uint64_t now_ms)
{
    return -1;
}

int replica_remove(struct replica *r, uint64_t id, uint64_t now_ms)
{
    return -1;
}

#endif
