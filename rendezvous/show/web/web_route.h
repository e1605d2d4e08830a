/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/wire/protocol/message.h"

/*
 * The target of a request as one of the pages that there are. Strict: a target has one
 * spelling but for percent signs, which are decoded once, after the path is split.
 */
enum web_page {
    WEB_NOTHING, /* there is no such page */
    WEB_PAGE,    /* of all jobs, a job or a rank: the same file */
    WEB_REPORT,
    WEB_API_VIEWER,
    WEB_API_JOBS,
    WEB_API_JOB,
    WEB_API_EVENTS,
    WEB_API_RANK,
    WEB_API_LOGS,
    WEB_API_STACKS,
    WEB_API_LIVE, /* of a job, or of all */
    WEB_METRICS,
    WEB_HEALTH,
    WEB_READY
};

struct web_route {
    enum web_page page;
    char run_id[RUN_ID_MAX + 1]; /* "": the page is of no job */
    uint32_t rank;               /* 0: the page is of no rank */
};

struct web_route web_route_parse(const char *target);

/* The value of a parameter of the target's query, decoded. False: it is not there, or
 * is too long or not text. */
bool web_query_get(const char *target, const char *name, char *value, size_t size);
