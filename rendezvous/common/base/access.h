/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

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

#define PEER_UID_UNKNOWN ((uid_t)-1) /* it is on another machine */
#define PEER_KEY_ID_MAX 31
#define PEER_OWNER_MAX 63 /* the name of a file in --key-dir */

/* "none", "view", "operate", "agent" */
extern const char *const access_names[ACCESS_COUNT];

/* False: the word is no name of an access. */
bool access_parse(const char *word, enum access *access);
