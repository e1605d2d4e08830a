/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/tcpstore/tcpstore.h"

/*
 * A store as simple as can be, with arrays for keys, queues and waiting clients: it
 * says what each client must get.
 */
#define CLIENTS 4
#define KEYS 5
#define QUEUE_MAX 6

struct buffer {
    uint8_t *data;
    size_t size;
};

struct key {
    bool there;
    struct buffer value;
    struct buffer queue[QUEUE_MAX];
    unsigned queued;
    int waiter[CLIENTS]; /* in the order of coming */
    unsigned waiters;
};

struct store_model {
    struct key key[KEYS];
};

struct model_client {
    struct tcpstore_session session;
    struct buffer request; /* being sent */
    size_t sent;
    uint8_t op, key[3], count;
    struct buffer value[3];
    int64_t number;
    struct buffer expected; /* of which what was taken is gone */
};

struct model_world {
    struct tcpstore *tcpstore;
    struct store_model model;
    struct model_client client[CLIENTS];
    bool refused; /* by the model, the request at hand */
};

void buffer_put(struct buffer *b, const void *data, size_t size);
void buffer_put8(struct buffer *b, uint8_t n);
void buffer_put64(struct buffer *b, uint64_t n);
void buffer_put_value(struct buffer *b, const struct buffer *value);
void buffer_clear(struct buffer *b);
void model_forget(struct model_world *w, int client);

/* The request of that client, all of it: what it must get, and others with it, is put
 * into `expected`; w->refused if it is to be cut off instead. */
void model_run(struct model_world *w, int client);
