/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_prefix.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/xalloc.h"

#define TEMPLATE_DEFAULT "[${role_name}${local_rank}]:"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

struct prefix_variable {
    const char *name, *value;
};

/* The length of the variable at text, "$name" or "${name}", and its value. 0: no known
 * variable, the text stays. */
static size_t match_variable(const char *text, const struct prefix_variable *v,
                             const char **value)
{
    bool braces = text[1] == '{';
    const char *name = text + 1 + braces;
    size_t n = strspn(name, LETTERS);

    if (text[1] == '$') {
        *value = "$";
        return 2;
    }
    if (n == 0 || (braces && name[n] != '}'))
        return 0;
    for (; v->name; v++) {
        if (strlen(v->name) == n && memcmp(v->name, name, n) == 0) {
            *value = v->value;
            return n + 1 + 2 * braces;
        }
    }
    return 0;
}

char *log_prefix_make(const char *template, const char *role, uint32_t rank,
                      uint32_t local_rank)
{
    char ranks[2][16], host[HOST_NAME_MAX_BYTES + 1] = "", *text = NULL;
    const struct prefix_variable variables[] = { { "role_name", role },
                                                 { "rank", ranks[0] },
                                                 { "local_rank", ranks[1] },
                                                 { "hostname", host },
                                                 { NULL, NULL } };
    size_t size, n;
    FILE *out = open_memstream(&text, &size);

    snprintf(ranks[0], sizeof(ranks[0]), "%" PRIu32, rank);
    snprintf(ranks[1], sizeof(ranks[1]), "%" PRIu32, local_rank);
    if (!out)
        return xstrdup("");
    (void)!gethostname(host, sizeof(host) - 1);
    for (const char *t = template ? template : TEMPLATE_DEFAULT; *t; t += n) {
        const char *value;

        n = *t == '$' ? match_variable(t, variables, &value) : 0;
        if (n > 0) {
            fputs(value, out);
        } else {
            fputc(*t, out);
            n = 1;
        }
    }
    fclose(out);
    return text;
}
