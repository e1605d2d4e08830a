/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/common/base/net.h"

/*
 * The head of a request as it comes from the network. evhttp reads it too, and takes
 * much that two programs may read in two ways: ends of line without CR, headers that go
 * on in the next line, several requests at once. None of our clients sends those.
 */
struct web_head {
    unsigned lines;
    size_t line; /* its bytes up to now */
    bool after_cr, ended;
    const char *fault; /* why it is refused; NULL: nothing is wrong with it */
};

void web_head_add(struct web_head *h, const char *bytes, size_t size);

/*
 * The names of this server. A page of another site can make a browser send requests
 * here, under a name that its owner lets mean this machine; it cannot choose the name
 * that the browser sends.
 */
struct web_names {
    const char *name[16]; /* WEB_NAMES_MAX */
    unsigned count;
};

/* `host` is the value of the header Host; `own` the address that the connection came
 * to. A number must be an address of this machine, a name one of the names. */
bool web_host_is_ours(const char *host, const struct web_names *names,
                      const struct net_addr *own);

/* Whether the header Origin is that of a page of ours, which was asked for as `host`.
 */
bool web_origin_is_host(const char *origin, const char *host);

/* The value of a cookie in the header Cookie. False: it is not there or too long. */
bool web_cookie_get(const char *header, const char *name, char *value, size_t size);
