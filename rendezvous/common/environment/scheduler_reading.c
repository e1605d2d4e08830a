/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/environment/scheduler_reading.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *value_of_entry(const char *entry, const char *name)
{
    size_t length = strlen(name);

    return strncmp(entry, name, length) == 0 && entry[length] == '='
               ? entry + length + 1
               : NULL;
}

const char *scheduler_value(const struct scheduler_env *env, const char *name)
{
    for (const char *const *v = env->variables; name && v && *v; v++) {
        const char *value = value_of_entry(*v, name);

        if (value)
            return *value ? value : NULL;
    }
    return NULL;
}

const char *reading_value(struct scheduler_reading *r, const char *name)
{
    const char *value = scheduler_value(r->env, name);
    char *names = r->n->variables;
    size_t used = strlen(names);

    if (value)
        snprintf(names + used, SCHEDULER_TEXT_SIZE - used, "%s%s", used ? ", " : "",
                 name);
    return value;
}

int reading_number(struct scheduler_reading *r, const char *name, uint64_t min,
                   uint64_t max, uint64_t *number)
{
    const char *value = scheduler_value(r->env, name);
    size_t digits = value ? strspn(value, "0123456789") : 0;

    if (!value)
        return 0;
    if (digits > 0 && digits < 19 && !value[digits] &&
        strtoull(value, NULL, 10) >= min && strtoull(value, NULL, 10) <= max) {
        *number = strtoull(value, NULL, 10);
        return 0;
    }
    return err_set(r->e,
                   "%s is \"%.64s\": it must be a number from %" PRIu64 " to %" PRIu64,
                   name, value, min, max);
}

int reading_u32(struct scheduler_reading *r, const char *name, uint64_t min,
                uint64_t max, uint32_t *number)
{
    uint64_t wide = *number;
    int rc = reading_number(r, name, min, max, &wide);

    *number = (uint32_t)wide;
    return rc;
}

/* What a job's id may consist of. */
static bool is_letter_of_id(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("._:@%+-", c));
}

void reading_add_to_id(struct scheduler_reading *r, const char *name)
{
    const char *value = scheduler_value(r->env, name);
    char *id = r->n->run_id;
    size_t used = strlen(id);

    if (value && used > 0 && used < RUN_ID_MAX)
        id[used++] = '.';
    for (; value && *value && used < RUN_ID_MAX; value++)
        id[used++] = is_letter_of_id(*value) ? *value : '-';
    id[used] = '\0';
}

/* The names of a list once each, in the order of their first places. */
static void drop_repeated_hosts(struct host_list *l)
{
    size_t kept = 0;

    for (size_t i = 0; i < l->count; i++) {
        bool is_new = true;

        /* processes of one host stand together, mostly */
        for (size_t j = kept; is_new && j > 0; j--)
            is_new = strcmp(l->name[j - 1], l->name[i]) != 0;
        if (is_new)
            l->name[kept++] = l->name[i];
        else
            free(l->name[i]);
    }
    l->count = kept;
}

int reading_expand_hosts(struct scheduler_reading *r, const char *name,
                         const char *text, struct host_list *l)
{
    return host_list_expand(text, l, r->e) < 0 ? err_wrap(r->e, "%s", name) : 0;
}

void scheduler_node_set_host(struct scheduler_node *n, const struct host_list *l)
{
    if (l->count > 0)
        snprintf(n->host, sizeof(n->host), "%s", l->name[0]);
}

int scheduler_first_host(const char *list, char *host, size_t size)
{
    size_t used = 0;

    while (*list && !strchr(", \t\n", *list)) {
        bool is_range = *list == '[';
        size_t length = strcspn(list += is_range, is_range ? "-,]" : "[, \t\n");

        if (length >= size - used)
            return -1;
        memcpy(host + used, list, length);
        used += length;
        list += is_range ? strcspn(list, "]") : length;
        list += is_range && *list == ']';
    }
    host[used] = '\0';
    return used > 0 ? 0 : -1;
}

int reading_host_file(struct scheduler_reading *r, const char *name,
                      struct host_list *l)
{
    const char *path = reading_value(r, name);
    char *text = path && r->env->read_file ? r->env->read_file(path) : NULL;
    int rc = 0;

    *l = (struct host_list){ 0 };
    if (text)
        rc = reading_expand_hosts(r, name, text, l);
    free(text);
    drop_repeated_hosts(l);
    return rc;
}
