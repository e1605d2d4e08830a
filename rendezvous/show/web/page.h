/* SPDX-License-Identifier: MIT */
#pragma once

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdio.h>

/*
 * The page: page.html with page.css and page_*.js inside, which draws jobs from their
 * JSON (rendezvous/show/views/job_json.h).
 */

/* The page of a browser, which asks for its objects by the path that it has. */
void page_write(FILE *out);

/* The page of one job as a file to keep or to send, with the object inside. */
void page_write_report(FILE *out, const cJSON *job, uint64_t now_ms);

/* The Content-Security-Policy of the page: its own style, its own script, and requests
 * to its own server. Computed once. */
const char *page_policy(void);
