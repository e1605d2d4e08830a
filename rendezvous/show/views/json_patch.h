/* SPDX-License-Identifier: MIT */
#pragma once

#include <cjson/cJSON.h>

/*
 * A JSON Patch (RFC 6902) of add, remove and replace that makes `to` of `from`, in one
 * line. The items of a list are the same ones if their first members are equal. Names
 * need no escapes. To be freed; NULL: they are equal.
 */
char *json_patch(const cJSON *from, const cJSON *to);
