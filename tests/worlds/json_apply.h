/* SPDX-License-Identifier: MIT */
#ifndef TESTS_WORLDS_JSON_APPLY_H
#define TESTS_WORLDS_JSON_APPLY_H

#include <cjson/cJSON.h>

/* What a JSON Patch of add, remove and replace makes of a value, which it takes over.
 * NULL: it does not fit. */
cJSON *json_apply(cJSON *value, const cJSON *patch);

#endif
