/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/memory/keeper_internal.h"

/*
 * A connection between two agents of a job, for a thread that waits: inside TLS with a
 * secret of that job if there is a key; and each request proves that it is of the job
 * by its instance. A peer that is silent for too long is gone.
 *
 * The connecting side sends requests, and reads a reply to each. Both machines have the
 * same byte order: the magic numbers say so.
 */
struct memory_link {
    LIST_ENTRY(memory_link) entry; /* of the keeper, which may end it */
    struct memory_keeper *keeper;
    int fd;                  /* -1: none */
    struct tls_session *tls; /* NULL: none */
};

enum memory_request_kind {
    MEMORY_GET = 1, /* a section, which follows the reply if that is OK */
    MEMORY_PUT      /* a part, which follows once that was answered with OK */
};

struct memory_request {
    uint32_t magic, version, kind;
    uint32_t rank, shared; /* GET */
    uint32_t pad;
    struct id128 instance;
    struct memory_set set;       /* GET; PUT: what the sender's epoch restored */
    struct memory_header header; /* PUT: of a part with an own section alone */
};

struct memory_reply {
    uint32_t magic;
    uint32_t status;             /* enum memory_status */
    struct memory_header header; /* GET; PUT: the part is there already */
    char text[MEMORY_TEXT_BYTES];
};

/* "HOST:PORT" of another agent. */
int memory_link_dial(struct memory_link *l, struct memory_keeper *k,
                     const char *address, struct err *e) MUST_CHECK;
/* Takes fd. */
int memory_link_accept(struct memory_link *l, struct memory_keeper *k,
                       int fd) MUST_CHECK;
void memory_link_close(struct memory_link *l);

/* All of it. */
int memory_link_send(struct memory_link *l, const void *data, size_t size,
                     struct err *e) MUST_CHECK;
int memory_link_receive(struct memory_link *l, void *data, size_t size,
                        struct err *e) MUST_CHECK;

/* Sends a request and waits for its reply; one that is not OK is an error with its
 * status as code. */
int memory_link_ask(struct memory_link *l, struct memory_request *r,
                    struct memory_reply *reply, struct err *e) MUST_CHECK;
/* The next request of an agent of this job. */
int memory_link_next(struct memory_link *l, struct memory_request *r) MUST_CHECK;
int memory_link_await(struct memory_link *l, struct memory_reply *reply,
                      struct err *e) MUST_CHECK;
int memory_link_reply(struct memory_link *l, enum memory_status status,
                      const struct memory_header *header, const char *text,
                      struct err *e) MUST_CHECK;

/* The bytes of a section, from its place in a file; so many a second, 0: any. */
int memory_link_give(struct memory_link *l, const struct memory_file *f, uint64_t at,
                     uint64_t size, uint64_t rate, struct err *e) MUST_CHECK;
/* The bytes of a part with one section, to a file that is long enough and has no part
 * before all of it is there and sound. Bytes of another hash are an error with the code
 * MEMORY_REFUSED. */
/* This thread gives way to training for the rest of its life, if a copy is so long. */
void memory_link_give_way(uint64_t bytes);
int memory_link_take(struct memory_link *l, struct memory_file *f,
                     const struct memory_header *h, struct err *e) MUST_CHECK;
