/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <raft.h>

/*
 * The library's messages as bytes, and back. Each begins with the id and the address of
 * its sender. PROTOCOL.md has the layout.
 */

/* Their numbers are the library's, which never change; the names of these do. */
enum raft_message_number {
    RAFT_MESSAGE_APPEND = 1,
    RAFT_MESSAGE_APPENDED,
    RAFT_MESSAGE_VOTE,
    RAFT_MESSAGE_VOTED,
    RAFT_MESSAGE_SNAPSHOT,
    RAFT_MESSAGE_TIMEOUT
};

/* The caller frees the bytes. */
uint8_t *raft_message_encode(const struct raft_message *m, raft_id from,
                             const char *address, size_t *size);
/* -1: it is none. The memory of entries and snapshots is the library's from then on;
 * the address of the sender is in `address`, of REPLICA_ADDRESS_SIZE bytes. */
int raft_message_decode(const uint8_t *data, size_t size, struct raft_message *m,
                        char *address);
