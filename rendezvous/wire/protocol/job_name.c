/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/protocol/job_name.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/wire/protocol/limits.h"

#define HEX "0123456789abcdef"
#define SHORT_ID_LENGTH 8
#define UUID_LENGTH 36

static bool is_uuid(const char *text)
{
    if (strlen(text) != UUID_LENGTH)
        return false;
    for (int i = 0; i < UUID_LENGTH; i++)
        if (i == 8 || i == 13 || i == 18 || i == 23 ? text[i] != '-'
                                                    : !strchr(HEX, text[i]))
            return false;
    return true;
}

void job_name_make_id(const char *random_hex, char id[9])
{
    snprintf(id, SHORT_ID_LENGTH + 1, "%s", random_hex);
    if (id[0] < 'a')
        id[0] = (char)('a' + (id[0] - '0') % 6);
}

bool job_name_is_generated(const char *run_id)
{
    return !*run_id || strcmp(run_id, RUN_ID_DEFAULT) == 0 || is_uuid(run_id) ||
           /* A letter comes first, so that no number of a batch job looks like one. */
           (strlen(run_id) == SHORT_ID_LENGTH &&
            strspn(run_id, HEX) == SHORT_ID_LENGTH && run_id[0] >= 'a');
}

char *job_name(const char *run_id, const char *program, char *buf, size_t size)
{
    const char *slash = strrchr(program, '/');
    size_t length;

    program = slash && slash[1] ? slash + 1 : program;
    length = strlen(program);
    if (!job_name_is_generated(run_id) || length == 0)
        snprintf(buf, size, "%s", run_id);
    else if (length > 3 && strcmp(program + length - 3, ".py") == 0)
        snprintf(buf, size, "%.*s", (int)length - 3, program);
    else
        snprintf(buf, size, "%s", program);
    return buf;
}
