/* SPDX-License-Identifier: MIT */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "rendezvous/common/base/log.h"
#include "rendezvous/tcpstore/store_server.h"
#include "rendezvous/tcpstore/tcpstore.h"
#include "rendezvous/wire/net/acceptor.h"

/*
 * Shared by the files of the server: store_server.c (its thread, and what other threads
 * call), store_admission.c (which are taken) and store_conn.c (connections).
 */
struct host_set;
struct held_slot;
struct thread_queue;

#define BUFFER_SIZE 65536
#define TLS_RECORD_BYTES 16384

struct store_conn {
    struct tcpstore_session session; /* first: a session is cast to its connection */
    int fd;                          /* -1: closed, freed at the end of the turn */
    bool identified;                 /* has identified itself */
    bool blocked;                    /* does not read its answers */
    bool answered;                   /* is on the list of that name */
    size_t out_memory;               /* of its answers, part of the server's */
    bool unknown;                    /* its first byte tells whether it speaks TLS */
    bool elsewhere;                  /* of another machine */
    bool allowed;                    /* without TLS */
    struct tls_session *tls;         /* NULL: plain */
    bool shaking;                    /* its handshake is not done */
    bool held;                       /* until its owner is known: not watched */
    uint64_t question;               /* then its number */
    struct acceptor_entry waiting;   /* linked until it is identified */
    TAILQ_ENTRY(store_conn) of_kind; /* then; or dead */
    TAILQ_ENTRY(store_conn) of_answered;
};

TAILQ_HEAD(store_conns, store_conn);

/* From another thread: a socket, or with fd -1 the answer to a question. */
struct store_input {
    int fd;
    uint64_t number;
    const char *why;
};

enum { STAT_COUNT = sizeof(struct store_server_stats) / sizeof(uint64_t) };

struct store_server {
    struct store_server_config config;
    struct tcpstore *tcpstore;
    int epoll;
    struct acceptor acceptor;
    struct thread_queue *inbox;     /* of store_input */
    struct thread_queue *questions; /* NULL: connections are not asked for */
    struct held_slot *held;         /* connections whose question is open */
    uint32_t held_slots, first_free_slot;
    struct tls_door *door; /* NULL before the first hello of TLS */
    unsigned handshakes;   /* left for this turn */
    uint16_t port;
    struct store_conns identified, dead;
    struct store_conns answered;
    struct store_server_stats now;
    size_t out_memory; /* of answers that all clients have not read */
    struct log_limit limit;

    pthread_t thread;
    atomic_bool stop;
    _Atomic uint64_t published[STAT_COUNT];
    pthread_mutex_t lock; /* what follows */
    struct host_set *allowed;

    uint8_t in[BUFFER_SIZE], out[BUFFER_SIZE], record[TLS_RECORD_BYTES];
};

/* -- store_server.c ---------------------------------------------------------------- */

/* epoll_ctl of the server's epoll. */
int store_server_watch(struct store_server *s, int op, int fd, uint32_t events,
                       void *tag);

/* -- store_admission.c ------------------------------------------------------------- */

/* A connection that was accepted or handed over. Takes over fd. */
void store_conn_admit(struct store_server *s, int fd, const struct net_addr *peer);
/* The question of that number is answered. why: NULL, or the reason to refuse it. */
void store_conn_on_answer(struct store_server *s, uint64_t number, const char *why);
/* By its first byte, once that is there. True: it can be read. */
bool store_conn_know(struct store_server *s, struct store_conn *c);
/* It waits for no answer any more. */
void store_conn_release(struct store_server *s, struct store_conn *c);
void store_server_refuse(struct store_server *s, const struct net_addr *peer,
                         const char *why);

/* -- store_conn.c ------------------------------------------------------------------ */

/* Its socket is ready. */
void store_conn_ready(struct store_server *s, struct store_conn *c, uint32_t events);
/* Send the queued answers. Until the client has read all of them, it is not read. */
void store_conn_flush(struct store_server *s, struct store_conn *c);
void store_conn_refuse(struct store_server *s, struct store_conn *c, const char *why);
/* Its memory stays until the end of the turn, which may still have an event for it. */
void store_conn_close(struct store_server *s, struct store_conn *c);
