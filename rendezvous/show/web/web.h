/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/show/web/web_grants.h"

struct loop;
struct metrics_view;
struct web;

/*
 * The page of a rendezvous, over HTTP: what crunctl shows, for browsers and for tools.
 * It shows and does nothing: no request changes a job. It runs in the loop of the
 * rendezvous, in small pieces, and what it costs is bounded (see limits.h).
 *
 * A viewer is known as a crunctl is: by the user of its connection on this machine, or
 * by the cookie of a link that crunctl page has printed.
 */
struct web_config { /* the texts are copied */
    struct registry *registry;
    bool standalone;      /* of many users; else of this process's user and his job */
    bool needs_key;       /* who shows no key sees nothing */
    const char *host;     /* of --http, "": none was given */
    const char *names;    /* of --http-name, separated by commas; NULL: none */
    const char *endpoint; /* for crunctl -e in commands to copy; "": not needed */
    /* A connection to the control port of this rendezvous, as of that viewer: the other
     * end, or -1. */
    int (*connect)(void *arg, const struct web_viewer *viewer, struct err *e);
    /* Whether the key of that identity has neither been retired nor ended. */
    bool (*accepts_key)(void *arg, const char *identity);
    /* Another one serves the jobs: its address, or NULL for none that is known. */
    bool (*stands_by)(void *arg, const char **leader);
    /* What metrics_write is given, for a viewer that may see all jobs. */
    void (*view_metrics)(void *arg, struct metrics_view *view);
    void *arg;
};

/* Listens. */
struct web *web_create(struct loop *loop, const struct web_config *config,
                       const struct net_addr *listen, struct err *e) MUST_CHECK;
void web_destroy(struct web *w); /* NULL is fine */

/* "http://127.0.0.1:29480/" */
const char *web_url(const struct web *w);
/* The same for one browser, which then sees what the viewer does: the page of a job, or
 * with run_id "" of all. Returns buf. */
char *web_link(struct web *w, const struct web_viewer *viewer, const char *run_id,
               char *buf, size_t size);

/* "HOST:PORT", "PORT" or ":PORT" as of --http: without HOST, loopback. `host` becomes
 * what is before the port. */
int web_parse_listen(const char *text, struct net_addr *addr, char *host, size_t size,
                     struct err *e) MUST_CHECK;
