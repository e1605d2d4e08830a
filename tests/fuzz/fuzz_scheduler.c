/* SPDX-License-Identifier: MIT */
/* The environment of a process as a scheduler may have set it, with any bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/environment/scheduler.h"

#define VARIABLES_MAX 64

static char *read_any_file(const char *path)
{
    return xstrdup(path);
}

static void check_node(const struct scheduler_node *n)
{
    if (memchr(n->host, '\0', sizeof(n->host)) == NULL ||
        memchr(n->run_id, '\0', sizeof(n->run_id)) == NULL ||
        memchr(n->variables, '\0', sizeof(n->variables)) == NULL || n->rank < -1 ||
        (n->nodes > 0 && n->rank >= (int32_t)n->nodes))
        abort();
}

/* Each line is a variable. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *variables[VARIABLES_MAX + 1];
    char *text = xmalloc(size + 1), *rest = text, *line;
    struct scheduler_env env = { .variables = variables,
                                 .host = "n2",
                                 .read_file = read_any_file };
    struct scheduler_node n;
    struct err e;
    size_t count = 0;

    memcpy(text, data, size);
    text[size] = '\0';
    while (count < VARIABLES_MAX && (line = strsep(&rest, "\n")) != NULL)
        variables[count++] = line;
    variables[count] = NULL;
    if (scheduler_find_node(&env, &n, &e) == 0)
        check_node(&n);
    (void)scheduler_find_rank(&env);
    free(text);
    return 0;
}
