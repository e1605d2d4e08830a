/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_BASE_ACCESS_H
#define RENDEZVOUS_BASE_ACCESS_H

#include <stdbool.h>

/*
 * What the other end of a connection may do at a rendezvous. The order is that of
 * power: a higher access includes all that a lower one allows.
 */
enum access {
    ACCESS_NONE,
    ACCESS_VIEW,    /* status and events */
    ACCESS_OPERATE, /* stop, drain */
    ACCESS_AGENT,   /* join a job as a node of it */
    ACCESS_COUNT
};

/* "none", "view", "operate", "agent" */
extern const char *const access_names[ACCESS_COUNT];

/* False: the word is no name of an access. */
bool access_parse(const char *word, enum access *access);

#endif
