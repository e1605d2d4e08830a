/* SPDX-License-Identifier: MIT */
#pragma once

#include <cjson/cJSON.h>

/* What a JSON Patch of add, remove and replace makes of a value, which it takes over.
 * NULL: it does not fit. */
cJSON *json_apply(cJSON *value, const cJSON *patch);
