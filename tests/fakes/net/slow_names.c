/* SPDX-License-Identifier: MIT */
#include "tests/fakes/net/slow_names.h"

#include <dlfcn.h>
#include <netdb.h>
#include <string.h>

sem_t slow_may_end, slow_has_ended;

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **result)
{
    int (*real)(const char *, const char *, const struct addrinfo *,
                struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");

    if (node && strcmp(node, "unknown.test") == 0)
        return EAI_NONAME;
    if (node && strcmp(node, "two.test") == 0) {
        int rc = real("127.0.0.2", service, hints, result);

        return rc ? rc : real("127.0.0.1", service, hints, &(*result)->ai_next);
    }
    if (!node || strcmp(node, "slow.test") != 0)
        return real(node, service, hints, result);
    sem_wait(&slow_may_end);
    sem_post(&slow_has_ended);
    return EAI_AGAIN;
}
