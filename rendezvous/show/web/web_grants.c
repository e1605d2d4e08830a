/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/web/web_grants.h"

struct id128 web_grants_add(struct web_grants *g, const struct web_viewer *viewer,
                            uint64_t now_ms)
{
    struct web_grant *grant = &g->grant[g->next++ % WEB_GRANTS_MAX];

    *grant = (struct web_grant){ .link = id128_random(),
                                 .cookie = id128_random(),
                                 .link_until_ms = now_ms + WEB_LINK_MS,
                                 .until_ms = now_ms + WEB_GRANT_MS,
                                 .viewer = *viewer };
    return grant->link;
}

/* In the same time wherever they differ: the time of an answer tells no part of it. */
static bool secret_equals(const struct id128 *a, const struct id128 *b)
{
    unsigned char difference = 0;

    for (unsigned i = 0; i < sizeof(a->byte); i++)
        difference |= a->byte[i] ^ b->byte[i];
    return difference == 0;
}

struct web_grant *web_grants_find_link(struct web_grants *g, const char *hex,
                                       uint64_t now_ms)
{
    struct web_grant *found = NULL;
    struct id128 id;

    if (!id128_parse(hex, &id))
        return NULL;
    for (unsigned i = 0; i < WEB_GRANTS_MAX; i++)
        if (g->grant[i].link_until_ms > now_ms && secret_equals(&g->grant[i].link, &id))
            found = &g->grant[i];
    return found;
}

const struct web_grant *web_grants_find_cookie(const struct web_grants *g,
                                               const char *hex, uint64_t now_ms)
{
    const struct web_grant *found = NULL;
    struct id128 id;

    if (!id128_parse(hex, &id))
        return NULL;
    for (unsigned i = 0; i < WEB_GRANTS_MAX; i++)
        if (g->grant[i].until_ms > now_ms && secret_equals(&g->grant[i].cookie, &id))
            found = &g->grant[i];
    return found;
}
