/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "rendezvous/common/base/access.h"
#include "rendezvous/common/base/id128.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/show/web/limits.h"

/* Of whom a page shows what: as a crunctl that is known in this way would see it. */
struct web_viewer {
    struct job_owner owner;
    enum access sight;
    char identity[TLS_IDENTITY_MAX + 1]; /* of the key of its crunctl; "": none */
};

/*
 * What crunctl page has given to browsers: a link, which counts for a short time, and
 * the cookie that a browser which follows it gets, which counts longer. A browser sends
 * its cookies to all ports of a host: on this machine a cookie counts only from the
 * user whose browser has followed the link. When there are too many, the oldest counts
 * no more.
 */
struct web_grant {
    struct id128 link, cookie;
    uint64_t link_until_ms, until_ms; /* 0: there is none */
    bool is_followed;
    uid_t uid; /* that has followed it, or PEER_UID_UNKNOWN */
    struct web_viewer viewer;
};

struct web_grants {
    struct web_grant grant[WEB_GRANTS_MAX];
    unsigned next;
};

/* Returns the link's secret. */
struct id128 web_grants_add(struct web_grants *g, const struct web_viewer *viewer,
                            uint64_t now_ms);
/* As in a request; NULL: it is none, or counts no more. */
struct web_grant *web_grants_find_link(struct web_grants *g, const char *hex,
                                       uint64_t now_ms);
const struct web_grant *web_grants_find_cookie(const struct web_grants *g,
                                               const char *hex, uint64_t now_ms);
