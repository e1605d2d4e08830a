/* SPDX-License-Identifier: MIT */
#include "rendezvous/registry/sources.h"

#include <arpa/inet.h>
#include <string.h>

#include "rendezvous/base/hash.h"

uint32_t source_of(const char *address)
{
    size_t size = strlen(address);
    struct in6_addr v6;
    uint64_t hash;

    if (size == 0)
        return SOURCE_NONE;
    hash = inet_pton(AF_INET6, address, &v6) == 1 && !IN6_IS_ADDR_V4MAPPED(&v6)
               ? hash_fnv1a(HASH_FNV1A_BASIS, &v6, 8)
               : hash_fnv1a(HASH_FNV1A_BASIS, address, size);
    return 1 + (uint32_t)(hash % SOURCES_MAX);
}
