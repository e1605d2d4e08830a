/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"

/* The messages of a channel that are JSON. Texts of an order are bytes of any kind, as
 * they were typed; nothing in it is a word of a shell. */

/* Launcher to far side: all that a node needs, but its place in the job. */
struct remote_order {
    char **argv;        /* the launcher's own: flags, program, arguments; NULL-ended */
    char **environment; /* "NAME=value", in addition to the host's own; NULL-ended */
    char *folder;       /* the working directory */
    char *run_id;
    char *key;        /* of this job, as in a key file */
    uint32_t workers; /* 0: as the flags say */
    bool detach;      /* output goes to a file of the host */
    bool live;        /* the launcher writes to a terminal: show lines without an end */
    bool one_stream;  /* the launcher's two streams are one: keep their order */
};

/* The caller wipes and frees it. */
char *remote_order_format(const struct remote_order *o);
int remote_order_parse(const void *text, size_t size, struct remote_order *o,
                       struct err *e) MUST_CHECK;
void remote_order_clear(struct remote_order *o); /* wipes the key */

/* Launcher to far side, once all hosts have answered: the node joins the job. */
struct remote_start {
    int32_t node_rank; /* -1: none; a node that comes later */
    uint32_t min_nodes, max_nodes;
    uint32_t nodes;  /* that the job begins with */
    bool host;       /* of the rendezvous, on the socket that the far side listens on */
    char *endpoints; /* "HOST:PORT,...": all of them of the rendezvous */
};

char *remote_start_format(const struct remote_start *s);
int remote_start_parse(const void *text, size_t size, struct remote_start *s,
                       struct err *e) MUST_CHECK;
void remote_start_clear(struct remote_start *s);

/* Far side to launcher. */
struct remote_hello {
    char *version;    /* of its crun */
    uint32_t channel; /* CHANNEL_VERSION */
    char *host;       /* the machine's own name */
    char **addresses; /* numbers; the one to which ssh connected comes first */
};

char *remote_hello_format(const struct remote_hello *h);
int remote_hello_parse(const void *text, size_t size, struct remote_hello *h,
                       struct err *e) MUST_CHECK;
void remote_hello_clear(struct remote_hello *h);

/* Why a far side cannot carry out an order. The values are on the wire. */
enum remote_refusal {
    REMOTE_NO_FOLDER = 1,
    REMOTE_NO_PROGRAM,
    REMOTE_FULL,
    REMOTE_BAD_FLAGS,
    REMOTE_BAD_ORDER,
    REMOTE_NO_SOCKET,
    REMOTE_REFUSAL_COUNT
};
