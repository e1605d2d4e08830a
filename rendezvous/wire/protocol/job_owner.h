/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "rendezvous/common/base/access.h"

/*
 * The maker of a job: the key file that has the key of its peer ("": there is one key
 * file, or none), or without a key the user on this machine. A peer is known in the
 * same way.
 */
struct job_owner {
    char key_file[PEER_OWNER_MAX + 1];
    uid_t uid; /* or PEER_UID_UNKNOWN: shown a key, or from another machine */
};

/* Whether the job exists for that peer. Root and the rendezvous' own user
 * know the jobs of all users. */
bool job_owner_admits(const struct job_owner *owner, const struct job_owner *peer);
