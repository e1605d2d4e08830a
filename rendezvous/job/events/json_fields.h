/* SPDX-License-Identifier: MIT */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

/* Members of objects that crun writes, and reads again: another user may have written
 * them. */
void json_add_count(cJSON *o, const char *name, uint64_t value);
/* null if it is not known */
void json_add_count_if(cJSON *o, bool is_known, const char *name, uint64_t value);

/* A whole number from 0 on that a double holds exactly. */
bool json_is_count(const cJSON *item);
uint64_t json_count(const cJSON *o, const char *name);   /* 0: there is none */
const char *json_text(const cJSON *o, const char *name); /* "": there is none */
