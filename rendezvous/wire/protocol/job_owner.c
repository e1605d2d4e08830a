/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/protocol/job_owner.h"

#include <string.h>
#include <unistd.h>

bool job_owner_admits(const struct job_owner *owner, const struct job_owner *peer)
{
    return strcmp(owner->key_file, peer->key_file) == 0 &&
           (owner->uid == peer->uid || owner->uid == PEER_UID_UNKNOWN ||
            peer->uid == PEER_UID_UNKNOWN || peer->uid == 0 || peer->uid == geteuid());
}
