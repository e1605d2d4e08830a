/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_WIRE_PROTOCOL_FOREIGN_SERVER_H
#define RENDEZVOUS_WIRE_PROTOCOL_FOREIGN_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What listens on a port where a rendezvous was expected. Pure: bytes in, words out. */

/* "an HTTP server", by the first bytes that it sends; NULL: they do not tell. */
const char *foreign_server_name(const void *data, size_t size);

/*
 * Servers that say nothing to a client of the control protocol answer one of these
 * questions, each on a connection of its own. A rendezvous answers none of them so: it
 * refuses a hello without a key by an alert, and its store knows the question.
 */
struct foreign_question {
    const uint8_t *bytes;
    size_t size;
    const char *name; /* of a server whose answer begins with these bytes */
    const uint8_t *answer;
    size_t answer_size;
};

#define FOREIGN_QUESTIONS 2
extern const struct foreign_question foreign_questions[FOREIGN_QUESTIONS];

/* The nonce of the question to a store, to which only crun's store answers by its
 * inverse. PyTorch's clients send their pid, which is smaller. */
#define FOREIGN_NONCE "\x43\x52\x55\x4e"

#endif
