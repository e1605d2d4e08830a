/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/net/sources.h"

#include <arpa/inet.h>
#include <string.h>

#include "rendezvous/common/base/access.h"
#include "rendezvous/common/base/hash.h"

uint32_t source_of(const char *address, uid_t uid)
{
    size_t size = strlen(address);
    uint64_t hash = HASH_FNV1A_BASIS;
    struct in6_addr v6;

    if (size == 0)
        return SOURCE_NONE;
    if (uid != PEER_UID_UNKNOWN)
        hash = hash_fnv1a(hash, &uid, sizeof(uid));
    else if (inet_pton(AF_INET6, address, &v6) == 1 && !IN6_IS_ADDR_V4MAPPED(&v6))
        hash = hash_fnv1a(hash, &v6, 8);
    else
        hash = hash_fnv1a(hash, address, size);
    return 1 + (uint32_t)(hash % SOURCES_MAX);
}
