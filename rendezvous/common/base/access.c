/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/access.h"

#include <string.h>

const char *const access_names[ACCESS_COUNT] = { "none", "view", "operate", "agent" };

bool access_parse(const char *word, enum access *access)
{
    for (int a = ACCESS_NONE; a < ACCESS_COUNT; a++)
        if (strcmp(word, access_names[a]) == 0) {
            *access = (enum access)a;
            return true;
        }
    return false;
}
