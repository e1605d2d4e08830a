/* SPDX-License-Identifier: MIT */
#pragma once

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdio.h>

#include "rendezvous/show/views/job_view.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * The JSON that crunctl and the page give, as crunctl's manual describes it: numbers
 * are numbers, null where they are not known; each time is there as RFC 3339 and in ms
 * since 1970.
 */
cJSON *job_json_object(const struct job_view *job);
cJSON *job_json_list(const struct job_views *v);

/* Prints it and a newline, and destroys it: in one line, or indented by two blanks. */
void job_json_print(cJSON *json, bool in_one_line, FILE *out);

/* Adds NAME and NAME_ms; null if wall_ms is 0. */
void job_json_add_time(cJSON *o, const char *name, uint64_t wall_ms);
/* Where time went; null if the rendezvous does not tell, or no restart has been. */
void job_json_add_phases(cJSON *o, const char *name, const struct msg_job_time *t);
