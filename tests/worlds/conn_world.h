/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/wire/net/conn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/wire/net/limits.h"
#include "rendezvous/wire/protocol/frame.h"
#include "tests/worlds/check_main.h"

#define PATIENCE_MS 60000

struct side {
    struct conn *conn;
    int peer; /* the bare end */
    unsigned messages, closed;
    struct msg last;
    char why[512];
    bool destroy_on_message, refuse_messages, answer, in_call;
    unsigned ready; /* for so many messages more */
    size_t waiting_max;
    bool connected;
};

static struct loop *loop;

static inline int on_message(void *arg, struct conn *c, const struct msg *m,
                             struct err *e)
{
    struct side *s = arg;

    s->messages++;
    if (s->ready > 0)
        s->ready--;
    s->last = *m;
    if (s->refuse_messages)
        return err_set(e, "not this one");
    if (s->answer)
        conn_send(c, m);
    if (s->destroy_on_message) {
        conn_destroy(c);
        s->conn = NULL;
    }
    return 0;
}

static inline bool on_ready(void *arg, struct conn *c)
{
    struct side *s = arg;

    return s->ready > 0 && conn_waiting(c) <= s->waiting_max;
}

static inline uint32_t on_body_max(void *arg, struct conn *c)
{
    return 512;
}

static inline void on_closed(void *arg, struct conn *c, const char *why)
{
    struct side *s = arg;

    ck_assert_ptr_eq(c, s->conn);
    ck_assert(!s->in_call);
    s->closed++;
    s->conn = NULL;
    snprintf(s->why, sizeof(s->why), "%s", why);
}

static inline void on_connected(void *arg, struct conn *c)
{
    struct side *s = arg;

    ck_assert_ptr_eq(c, s->conn);
    s->connected = true;
}

static inline struct conn_calls calls_of(struct side *s)
{
    return (struct conn_calls){
        .message = on_message, .body_max = on_body_max, .closed = on_closed, .arg = s
    };
}

static inline void open_side(struct side *s, bool expect_preface)
{
    struct conn_calls calls = calls_of(s);
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    s->peer = pair[0];
    s->conn = conn_create(loop, pair[1], expect_preface, NULL, &calls);
}

static inline size_t make_frame(uint8_t *out, size_t size)
{
    struct msg m = { .type = MSG_HELLO, .sequence = 7, .epoch = 3 };

    m.hello.version_min = m.hello.version_max = PROTO_VERSION_MAX;
    m.hello.role = PEER_AGENT;
    strcpy(m.hello.software, "test");
    return proto_encode(&m, out, size);
}

static inline struct msg hello(void)
{
    struct msg m = { .type = MSG_HELLO };

    m.hello.version_min = m.hello.version_max = PROTO_VERSION_MAX;
    m.hello.role = PEER_AGENT;
    strcpy(m.hello.software, "test");
    return m;
}

static inline void send_bytes_of(struct side *s, const void *data, size_t size)
{
    ck_assert_int_eq(write(s->peer, data, size), (ssize_t)size);
}

/* Everything the peer can read now. */
static inline size_t next_message(struct side *s, uint8_t *data, size_t size)
{
    ssize_t n = recv(s->peer, data, size, MSG_DONTWAIT);

    return n > 0 ? (size_t)n : 0;
}

static inline bool at_end(struct side *s)
{
    uint8_t byte;

    return recv(s->peer, &byte, 1, MSG_DONTWAIT) == 0;
}

#define WAIT_FOR(condition)                                                            \
    do {                                                                               \
        uint64_t until = clock_ms() + PATIENCE_MS;                                     \
        bool holds;                                                                    \
        while (!(holds = (condition)) && clock_ms() < until)                           \
            loop_turn(loop, 10);                                                       \
        ck_assert_msg(holds, "in vain: %s", #condition);                               \
    } while (0)

static inline void setup(void)
{
    loop = loop_create();
}

static inline void teardown(void)
{
    loop_destroy(loop);
}

static inline void close_side(struct side *s)
{
    conn_destroy(s->conn);
    close(s->peer);
}
