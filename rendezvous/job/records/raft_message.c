/* SPDX-License-Identifier: MIT */
#ifdef CRUN_RAFT
#include "rendezvous/job/records/raft_message.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/wire.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/records/limits.h"

/* Newer versions have no third value, and say which fields a message has. */
#ifdef RAFT_VERSION_NUMBER
#define PRE_VOTE(it_is) (it_is)
#define SET_VERSION(body, number) ((body).version = number)
#else
#define PRE_VOTE(it_is) TO_RAFT_TRIBOOL(it_is)
#define SET_VERSION(body, number) ((void)0)
#endif

#define FIXED_SIZE 128 /* more than the numbers of any message */
#define ENTRY_HEADER_SIZE 13

/* -- writing ---------------------------------------------------------------------- */

static size_t message_size_max(const struct raft_message *m)
{
    size_t size = FIXED_SIZE + REPLICA_ADDRESS_SIZE;

    if ((int)m->type == RAFT_MESSAGE_APPEND)
        for (unsigned i = 0; i < m->append_entries.n_entries; i++)
            size += ENTRY_HEADER_SIZE + m->append_entries.entries[i].buf.len;
    if ((int)m->type == RAFT_MESSAGE_SNAPSHOT)
        size += m->install_snapshot.data.len +
                (size_t)m->install_snapshot.conf.n * (REPLICA_ADDRESS_SIZE + 16);
    return size;
}

static void put_append(struct wire_out *w, const struct raft_append_entries *a)
{
    wire_put_u64(w, a->term);
    wire_put_u64(w, a->prev_log_index);
    wire_put_u64(w, a->prev_log_term);
    wire_put_u64(w, a->leader_commit);
    wire_put_u32(w, a->n_entries);
    for (unsigned i = 0; i < a->n_entries; i++) {
        wire_put_u64(w, a->entries[i].term);
        wire_put_u8(w, (uint8_t)a->entries[i].type);
        wire_put_u32(w, (uint32_t)a->entries[i].buf.len);
        wire_put_bytes(w, a->entries[i].buf.base, a->entries[i].buf.len);
    }
}

static void put_vote(struct wire_out *w, const struct raft_request_vote *v)
{
    wire_put_u64(w, v->term);
    wire_put_u64(w, v->candidate_id);
    wire_put_u64(w, v->last_log_index);
    wire_put_u64(w, v->last_log_term);
    wire_put_u8(w, v->disrupt_leader);
    wire_put_u8(w, v->pre_vote);
}

static void put_snapshot(struct wire_out *w, const struct raft_install_snapshot *s)
{
    wire_put_u64(w, s->term);
    wire_put_u64(w, s->last_index);
    wire_put_u64(w, s->last_term);
    wire_put_u64(w, s->conf_index);
    wire_put_u32(w, s->conf.n);
    for (unsigned i = 0; i < s->conf.n; i++) {
        wire_put_u64(w, s->conf.servers[i].id);
        wire_put_u8(w, (uint8_t)s->conf.servers[i].role);
        wire_put_text(w, s->conf.servers[i].address);
    }
    wire_put_u32(w, (uint32_t)s->data.len);
    wire_put_bytes(w, s->data.base, s->data.len);
}

static void put_body(struct wire_out *w, const struct raft_message *m)
{
    switch ((int)m->type) {
    case RAFT_MESSAGE_APPEND:
        put_append(w, &m->append_entries);
        break;
    case RAFT_MESSAGE_APPENDED:
        wire_put_u64(w, m->append_entries_result.term);
        wire_put_u64(w, m->append_entries_result.rejected);
        wire_put_u64(w, m->append_entries_result.last_log_index);
        break;
    case RAFT_MESSAGE_VOTE:
        put_vote(w, &m->request_vote);
        break;
    case RAFT_MESSAGE_VOTED:
        wire_put_u64(w, m->request_vote_result.term);
        wire_put_u8(w, m->request_vote_result.vote_granted);
        wire_put_u8(w, m->request_vote_result.pre_vote == 1);
        break;
    case RAFT_MESSAGE_SNAPSHOT:
        put_snapshot(w, &m->install_snapshot);
        break;
    default:
        wire_put_u64(w, m->timeout_now.term);
        wire_put_u64(w, m->timeout_now.last_log_index);
        wire_put_u64(w, m->timeout_now.last_log_term);
        break;
    }
}

uint8_t *raft_message_encode(const struct raft_message *m, raft_id from,
                             const char *address, size_t *size)
{
    struct wire_out w = { .size = message_size_max(m) };

    w.start = xmalloc(w.size);
    wire_put_u64(&w, from);
    wire_put_text(&w, address);
    wire_put_u8(&w, (uint8_t)m->type);
    put_body(&w, m);
    if (w.bad)
        abort();
    *size = w.used;
    return w.start;
}

/* -- reading ---------------------------------------------------------------------- */

/* All entries share one block of memory, as the library expects it. */
static void get_append(struct wire_in *in, struct raft_append_entries *a)
{
    size_t used = 0;
    char *batch;

    a->term = wire_get_u64(in);
    a->prev_log_index = wire_get_u64(in);
    a->prev_log_term = wire_get_u64(in);
    a->leader_commit = wire_get_u64(in);
    a->n_entries = wire_get_u32(in);
    if (in->bad || a->n_entries > in->left / ENTRY_HEADER_SIZE)
        in->bad = true;
    if (in->bad || a->n_entries == 0)
        return;
    a->entries = raft_calloc(a->n_entries, sizeof(*a->entries));
    batch = raft_malloc(in->left);
    if (!a->entries || !batch)
        abort();
    for (unsigned i = 0; i < a->n_entries; i++) {
        struct raft_entry *e = &a->entries[i];
        size_t size;

        e->term = wire_get_u64(in);
        e->type = wire_get_u8(in);
        size = wire_get_u32(in);
        if (size > in->left || (int)e->type < RAFT_COMMAND ||
            (int)e->type > RAFT_CHANGE) {
            in->bad = true;
            break;
        }
        e->batch = batch;
        e->buf = (struct raft_buffer){ .base = batch + used, .len = size };
        wire_get_bytes(in, batch + used, size);
        used += size;
    }
    if (!in->bad)
        return;
    raft_free(batch);
    raft_free(a->entries);
}

static void get_vote(struct wire_in *in, struct raft_request_vote *v)
{
    v->term = wire_get_u64(in);
    v->candidate_id = wire_get_u64(in);
    v->last_log_index = wire_get_u64(in);
    v->last_log_term = wire_get_u64(in);
    v->disrupt_leader = wire_get_u8(in);
    v->pre_vote = wire_get_u8(in);
}

static void get_servers(struct wire_in *in, struct raft_configuration *conf)
{
    uint32_t n = wire_get_u32(in);
    char address[REPLICA_ADDRESS_SIZE];

    if (n > REPLICA_SERVERS_MAX)
        in->bad = true;
    for (uint32_t i = 0; i < n && !in->bad; i++) {
        raft_id id = wire_get_u64(in);
        int role = wire_get_u8(in);

        wire_get_text(in, address, sizeof(address));
        if (!in->bad && raft_configuration_add(conf, id, address, role) != 0)
            in->bad = true;
    }
}

static void get_snapshot(struct wire_in *in, struct raft_install_snapshot *s)
{
    s->term = wire_get_u64(in);
    s->last_index = wire_get_u64(in);
    s->last_term = wire_get_u64(in);
    s->conf_index = wire_get_u64(in);
    raft_configuration_init(&s->conf);
    get_servers(in, &s->conf);
    s->data.len = wire_get_u32(in);
    if (s->data.len > in->left)
        in->bad = true;
    if (in->bad) {
        raft_configuration_close(&s->conf);
        return;
    }
    s->data.base = raft_malloc(s->data.len + 1);
    if (!s->data.base)
        abort();
    wire_get_bytes(in, s->data.base, s->data.len);
}

static void get_body(struct wire_in *in, struct raft_message *m)
{
    switch ((int)m->type) {
    case RAFT_MESSAGE_APPEND:
        get_append(in, &m->append_entries);
        break;
    case RAFT_MESSAGE_APPENDED:
        m->append_entries_result.term = wire_get_u64(in);
        m->append_entries_result.rejected = wire_get_u64(in);
        m->append_entries_result.last_log_index = wire_get_u64(in);
        break;
    case RAFT_MESSAGE_VOTE:
        get_vote(in, &m->request_vote);
        break;
    case RAFT_MESSAGE_VOTED:
        m->request_vote_result.term = wire_get_u64(in);
        m->request_vote_result.vote_granted = wire_get_u8(in) == 1;
        m->request_vote_result.pre_vote = PRE_VOTE(wire_get_u8(in) == 1);
        break;
    case RAFT_MESSAGE_SNAPSHOT:
        get_snapshot(in, &m->install_snapshot);
        break;
    case RAFT_MESSAGE_TIMEOUT:
        m->timeout_now.term = wire_get_u64(in);
        m->timeout_now.last_log_index = wire_get_u64(in);
        m->timeout_now.last_log_term = wire_get_u64(in);
        break;
    default:
        in->bad = true;
        break;
    }
}

int raft_message_decode(const uint8_t *data, size_t size, struct raft_message *m,
                        char *address)
{
    struct wire_in in = { .next = data, .left = size };

    memset(m, 0, sizeof(*m));
    m->server_id = wire_get_u64(&in);
    wire_get_text(&in, address, REPLICA_ADDRESS_SIZE);
    m->server_address = address;
    m->type = wire_get_u8(&in);
    if ((int)m->type == RAFT_MESSAGE_VOTE)
        SET_VERSION(m->request_vote, 2);
    else if ((int)m->type == RAFT_MESSAGE_VOTED)
        SET_VERSION(m->request_vote_result, 2);
    if (m->server_id == 0 || in.bad)
        return -1;
    get_body(&in, m);
    return in.bad ? -1 : 0;
}

#endif
