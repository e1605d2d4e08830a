/* SPDX-License-Identifier: MIT */
/*
 * Makes the links. Every rank listens, and writes its address to the store; rank 0
 * makes a list of all addresses, and every rank calls the ranks before it. Both ends
 * prove that they know the token of the world, which is not sent:
 *
 *   CALL       caller: its rank, the rank that it calls, and a random number
 *   CHALLENGE  answerer: the same, with a random number of its own
 *   PROOF      caller: a tag of both numbers, both ranks and this step
 *   ACCEPT     answerer: a tag of the same, and of this step
 *
 * A greeting of another connection, of another meeting or of the other direction has
 * other numbers, ranks or steps, so its tag is wrong. The answerer uses the link once
 * it has the caller's proof, the caller once it is accepted.
 *
 * A foreign process that calls is dropped and the rank listens on. It may still take
 * the places of ranks that call: a rank that is hung up on calls again, until the
 * deadline. Once all links exist, no rank listens any more.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/keyed_hash.h"
#include "rendezvous/common/base/net.h"
#include "worker-lib/backends/tcp/tcp_meeting.h"
#include "worker-lib/engine/failure_notice.h"

#define MAGIC 0x63707404u /* changes with the protocol */
#define ACCEPT_MAX 32     /* in a row, before the others are served */
#define FRESH_MS 500      /* in which a place is not given to another host's call */
#define GREETING_MS 5000  /* for a caller to prove itself */
#define AGAIN_MS_MIN 10   /* before a rank that has hung up is called again */
#define AGAIN_MS_MAX 500
#define LOOK_UP_MS 50       /* at the abort word */
#define KEEPALIVE_IDLE_S 10 /* before a host that does not answer is probed */
#define KEEPALIVE_EVERY_S 5
#define KEEPALIVE_COUNT 4
#define SPIN_US 50

/* -- links ------------------------------------------------------------------------- */

static void make_link(struct meeting *m, unsigned p, int fd)
{
    static const struct {
        int level, name, value;
    } option[] = {
        { SOL_SOCKET, SO_KEEPALIVE, 1 },
        { IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S },
        { IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_S },
        { IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT },
    };

    for (size_t i = 0; i < sizeof(option) / sizeof(option[0]); i++)
        (void)setsockopt(fd, option[i].level, option[i].name, &option[i].value,
                         sizeof(option[i].value));
    m->tcp->link[p].fd = fd;
    m->links++;
}

/* Reads more. 1: the greeting is complete, 0: not yet, -1: the peer has hung up. */
static int read_greeting(struct incoming *g)
{
    ssize_t n = recv(g->fd, (uint8_t *)&g->greeting + g->came,
                     sizeof(g->greeting) - g->came, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return -1;
    g->came += (size_t)n;
    if (g->came < sizeof(g->greeting))
        return 0;
    g->came = 0;
    return 1;
}

static bool send_greeting(const struct meeting *m, int fd, enum greeting_step step,
                          unsigned to, const struct id128 *body)
{
    struct greeting g = {
        .magic = MAGIC, .step = step, .from = m->team->rank, .to = to, .body = *body
    };

    return send(fd, &g, sizeof(g), MSG_NOSIGNAL) == (ssize_t)sizeof(g);
}

static struct greeting_proof proof_for(const struct meeting *m, unsigned caller,
                                       unsigned answerer)
{
    return (struct greeting_proof){ .label = "crun tcp",
                                    .caller = caller,
                                    .answerer = answerer,
                                    .meeting = m->number };
}

static struct id128 proof_tag(const struct meeting *m, struct greeting_proof *proof,
                              enum greeting_step step)
{
    proof->step = step;
    return keyed_hash_tag(&m->team->board->token, proof, sizeof(*proof));
}

/* Whether it is the expected step of that rank, with the right tag if it has one. */
static bool is_from(const struct meeting *m, struct incoming *g, unsigned p)
{
    const struct greeting *it = &g->greeting;
    struct id128 tag;

    if (it->magic != MAGIC || it->step != g->next || it->from != p ||
        it->to != m->team->rank)
        return false;
    if (g->next != GREETING_PROOF && g->next != GREETING_ACCEPT)
        return true;
    tag = proof_tag(m, &g->proof, g->next);
    return keyed_hash_tag_equal(&tag, &it->body);
}

/* -- outgoing connections ---------------------------------------------------------- */

static crun_status connect_to_peer(struct meeting *m, unsigned p)
{
    struct incoming *g = &m->called[p];
    struct net_addr addr;

    if (net_parse(m->address[p], &addr, m->e) < 0) {
        err_set(m->e, "the store has no valid address of rank %u",
                m->team->world_rank[p]);
        return CRUN_MISMATCH;
    }
    g->fd = net_connect(&addr, m->e);
    if (g->fd < 0) {
        err_wrap(m->e, "rank %u", m->team->world_rank[p]);
        return CRUN_SYSTEM;
    }
    g->next = GREETING_NONE;
    g->came = 0;
    g->proof = proof_for(m, m->team->rank, p);
    g->proof.caller_number = id128_random();
    return CRUN_OK;
}

static crun_status fail_unreachable(struct meeting *m, unsigned p, int errnum)
{
    err_set_errno(m->e, errnum, "cannot connect to rank %u at %s",
                  m->team->world_rank[p], m->address[p]);
    return CRUN_PEER_LOST;
}

/* Another process may have taken our place there. If the rank is gone, nothing listens
 * at its address, and the next call fails. */
static crun_status call_again_later(struct meeting *m, unsigned p)
{
    struct incoming *g = &m->called[p];

    close(g->fd);
    g->fd = -1;
    g->pause_ms = g->pause_ms == 0                 ? AGAIN_MS_MIN
                  : g->pause_ms < AGAIN_MS_MAX / 2 ? 2 * g->pause_ms
                                                   : AGAIN_MS_MAX;
    g->again_ms = clock_ms() + g->pause_ms;
    return CRUN_OK;
}

static crun_status call_again(struct meeting *m)
{
    uint64_t now = clock_ms();
    crun_status status = CRUN_OK;

    for (unsigned p = 0; p < m->team->rank && status == CRUN_OK; p++)
        if (m->called[p].again_ms != 0 && m->called[p].again_ms <= now) {
            m->called[p].again_ms = 0;
            status = connect_to_peer(m, p);
        }
    return status;
}

static crun_status send_call(struct meeting *m, unsigned p)
{
    struct incoming *g = &m->called[p];
    socklen_t size = sizeof(int);
    int errnum = 0;

    if (getsockopt(g->fd, SOL_SOCKET, SO_ERROR, &errnum, &size) < 0)
        errnum = errno;
    if (errnum != 0)
        return fail_unreachable(m, p, errnum);
    if (!send_greeting(m, g->fd, GREETING_CALL, p, &g->proof.caller_number))
        return call_again_later(m, p);
    g->next = GREETING_CHALLENGE;
    return CRUN_OK;
}

static crun_status send_proof(struct meeting *m, unsigned p)
{
    struct incoming *g = &m->called[p];
    struct id128 tag;

    g->proof.answerer_number = g->greeting.body;
    tag = proof_tag(m, &g->proof, GREETING_PROOF);
    if (!send_greeting(m, g->fd, GREETING_PROOF, p, &tag))
        return call_again_later(m, p);
    g->next = GREETING_ACCEPT;
    return CRUN_OK;
}

static crun_status handle_outgoing(struct meeting *m, unsigned p)
{
    struct incoming *g = &m->called[p];
    int came;

    if (g->next == GREETING_NONE)
        return send_call(m, p);
    came = read_greeting(g);
    if (came == 0)
        return CRUN_OK;
    if (came < 0)
        return call_again_later(m, p);
    if (!is_from(m, g, p)) {
        err_set(m->e, "the process at %s is not rank %u", m->address[p],
                m->team->world_rank[p]);
        return CRUN_PEER_LOST;
    }
    if (g->next == GREETING_CHALLENGE)
        return send_proof(m, p);
    make_link(m, p, g->fd);
    g->fd = -1;
    return CRUN_OK;
}

/* -- incoming connections ---------------------------------------------------------- */

static void remove_incoming(struct meeting *m, unsigned i)
{
    memmove(&m->incoming[i], &m->incoming[i + 1],
            (m->incoming_count - i - 1) * sizeof(m->incoming[0]));
    m->incoming_count--;
}

static void drop_incoming(struct meeting *m, unsigned i)
{
    close(m->incoming[i].fd);
    remove_incoming(m, i);
}

static unsigned calls_of_host(const struct meeting *m, uint64_t host)
{
    unsigned calls = 0;

    for (unsigned i = 0; i < m->incoming_count; i++)
        calls += m->incoming[i].host == host;
    return calls;
}

/* Finds a place for a call that waits: that of the oldest call of the host that has
 * the most, or `incoming_count`, a free one. False: all are fresh. */
static bool find_place(const struct meeting *m, unsigned *place)
{
    unsigned most = 0;

    *place = m->incoming_count;
    if (m->incoming_count < INCOMING_MAX)
        return true;
    for (unsigned i = 0; i < m->incoming_count; i++) {
        unsigned calls = calls_of_host(m, m->incoming[i].host);

        if (calls > most) {
            most = calls;
            *place = i;
        }
    }
    return most > INCOMING_MAX / 2 ||
           clock_ms() >= m->incoming[*place].since_ms + FRESH_MS;
}

static void accept_incoming(struct meeting *m)
{
    struct net_addr peer;
    unsigned place;
    int fd;

    for (unsigned n = 0; n < ACCEPT_MAX && find_place(m, &place); n++) {
        fd = net_accept(m->listener, &peer);
        if (fd < 0)
            return;
        if (place < m->incoming_count)
            drop_incoming(m, place);
        m->incoming[m->incoming_count++] = (struct incoming){
            .fd = fd,
            .host = net_hash_host(&peer),
            .since_ms = clock_ms(),
            .next = GREETING_CALL,
        };
    }
}

static void drop_late(struct meeting *m)
{
    uint64_t now = clock_ms();

    for (unsigned i = m->incoming_count; i-- > 0;)
        if (now >= m->incoming[i].since_ms + GREETING_MS)
            drop_incoming(m, i);
}

/* Answers the greeting. False: it is not from a rank that is expected. */
static bool answer_greeting(struct meeting *m, struct incoming *g)
{
    unsigned p = g->greeting.from;
    struct id128 tag;

    if (p <= m->team->rank || p >= m->team->size || m->tcp->link[p].fd >= 0 ||
        (g->next == GREETING_PROOF && p != g->proof.caller) || !is_from(m, g, p))
        return false;
    if (g->next == GREETING_CALL) {
        g->proof = proof_for(m, p, m->team->rank);
        g->proof.caller_number = g->greeting.body;
        g->proof.answerer_number = id128_random();
        g->next = GREETING_PROOF;
        return send_greeting(m, g->fd, GREETING_CHALLENGE, p,
                             &g->proof.answerer_number);
    }
    tag = proof_tag(m, &g->proof, GREETING_ACCEPT);
    g->next = GREETING_ACCEPT;
    return send_greeting(m, g->fd, GREETING_ACCEPT, p, &tag);
}

static void handle_incoming(struct meeting *m, unsigned i)
{
    struct incoming *g = &m->incoming[i];
    int came = read_greeting(g);

    if (came == 0)
        return;
    if (came < 0 || !answer_greeting(m, g)) {
        drop_incoming(m, i);
        return;
    }
    if (g->next == GREETING_ACCEPT) {
        make_link(m, g->proof.caller, g->fd);
        remove_incoming(m, i);
    }
}

/* -- all connections --------------------------------------------------------------- */

static unsigned poll_for(struct meeting *m)
{
    unsigned n = 0, place;

    m->polls[n++] = (struct pollfd){ .fd = find_place(m, &place) ? m->listener : -1,
                                     .events = POLLIN };
    for (unsigned i = 0; i < m->incoming_count; i++)
        m->polls[n++] = (struct pollfd){ .fd = m->incoming[i].fd, .events = POLLIN };
    for (unsigned p = 0; p < m->team->rank; p++) {
        short events = m->called[p].next == GREETING_NONE ? POLLOUT : POLLIN;

        m->polls[n++] = (struct pollfd){ .fd = m->called[p].fd, .events = events };
    }
    return n;
}

static crun_status poll_meeting(struct meeting *m)
{
    unsigned incoming_count = m->incoming_count;
    crun_status status = CRUN_OK;

    for (unsigned p = 0; p < m->team->rank && status == CRUN_OK; p++)
        if (m->called[p].fd >= 0 && m->polls[1 + incoming_count + p].revents)
            status = handle_outgoing(m, p);
    for (unsigned i = incoming_count; i-- > 0;)
        if (m->polls[1 + i].revents)
            handle_incoming(m, i);
    if (m->polls[0].revents)
        accept_incoming(m);
    return status;
}

static crun_status fail_meeting(struct meeting *m)
{
    unsigned p = 0;

    while (p == m->team->rank || m->tcp->link[p].fd >= 0)
        p++;
    err_set(m->e, "rank %u has not %s in time (%u of %u connections exist)",
            m->team->world_rank[p], p < m->team->rank ? "answered" : "connected",
            m->links, m->team->size - 1);
    return CRUN_TIMEOUT;
}

static crun_status connect_all(struct meeting *m)
{
    crun_status status = CRUN_OK;

    for (unsigned p = 0; p < m->team->rank && status == CRUN_OK; p++)
        status = connect_to_peer(m, p);
    while (status == CRUN_OK && m->links < m->team->size - 1) {
        uint64_t now = clock_ms();
        uint64_t left = now < m->deadline_ms ? m->deadline_ms - now : 0;

        if (abort_get(m->team->aborted))
            return tcp_fail_aborted(m->tcp, m->e);
        if (left == 0)
            return fail_meeting(m);
        drop_late(m);
        status = call_again(m);
        if (status == CRUN_OK &&
            poll(m->polls, poll_for(m), left < LOOK_UP_MS ? (int)left : LOOK_UP_MS) > 0)
            status = poll_meeting(m);
    }
    return status;
}

/* A rank may poll in a loop if every rank on this host has its own processor. */
static unsigned spin_us(const struct meeting *m)
{
    const char *own = m->address[m->team->rank];
    size_t length = (size_t)(strrchr(own, ':') - own) + 1;
    unsigned here = 0;
    cpu_set_t cpus;

    for (unsigned p = 0; p < m->team->size; p++)
        if (strncmp(m->address[p], own, length) == 0)
            here++;
    if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0)
        return 0;
    return here > (unsigned)CPU_COUNT(&cpus) ? 0 : SPIN_US;
}

static crun_status run_meeting(struct meeting *m)
{
    crun_status status = tcp_listen(m);

    if (status == CRUN_OK)
        status = tcp_exchange_addresses(m);
    if (status == CRUN_OK)
        status = connect_all(m);
    if (status == CRUN_OK && m->team->is_group)
        tcp_delete_addresses(m);
    if (status == CRUN_OK)
        m->tcp->spin_us = spin_us(m);
    return status;
}

static bool prepare_meeting(struct meeting *m)
{
    unsigned size = m->team->size;

    m->address = calloc(size, sizeof(*m->address));
    m->called = calloc(size, sizeof(*m->called));
    m->polls = calloc(1 + INCOMING_MAX + size, sizeof(*m->polls));
    for (unsigned p = 0; m->called && p < size; p++)
        m->called[p].fd = -1;
    return m->address && m->called && m->polls;
}

static void end_meeting(struct meeting *m)
{
    while (m->incoming_count > 0)
        drop_incoming(m, 0);
    for (unsigned p = 0; m->called && p < m->team->size; p++)
        if (m->called[p].fd >= 0)
            close(m->called[p].fd);
    if (m->listener >= 0)
        close(m->listener);
    free(m->address);
    free(m->called);
    free(m->polls);
    free(m);
}

crun_status tcp_meet(struct tcp *t, const struct team *team, uint64_t deadline_ms,
                     struct err *e)
{
    struct meeting *m;
    crun_status status = CRUN_NO_MEMORY;

    if (team->size == 1)
        return CRUN_OK;
    err_set(e, "no memory to meet %u ranks", team->size - 1);
    m = calloc(1, sizeof(*m));
    if (!m)
        return status;
    m->tcp = t;
    m->team = team;
    m->deadline_ms = deadline_ms;
    m->e = e;
    m->listener = -1;
    if (prepare_meeting(m))
        status = run_meeting(m);
    end_meeting(m);
    return status;
}
