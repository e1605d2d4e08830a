/* SPDX-License-Identifier: MIT */
/*
 * The grammars of host lists. A text is lines, a line is words:
 *
 *   line   = { hosts | "slots=" N | N | other "=" value } [ "#" comment ]
 *   hosts  = item { "," item }
 *   item   = [ user "@" ] node [ ":" N ]
 *   node   = name | name with ranges in brackets | "[" IPv6 address "]" | IPv6 address
 */
#include "launcher/hosts/host_parse.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/hosts/hosts.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/environment/host_list.h"

#define BLANKS " \t\r\v\f"

/* A host as one line names it. */
struct host_entry {
    char *name;
    uint32_t slots;
    unsigned line;
    uint32_t times; /* that it stands there, after merge_entries */
    size_t index;   /* in the order of the text */
};

struct host_parser {
    const char *from;
    unsigned line;
    struct host_entry *entry;
    size_t count, capacity;
    size_t line_first; /* the first entry of this line */
    size_t word_first; /* that of the last word that named hosts */
};

static bool is_decimal(const char *text)
{
    return *text && text[strspn(text, "0123456789")] == '\0';
}

static int parse_slots(const char *text, uint32_t *slots, struct err *e)
{
    unsigned long number = is_decimal(text) && strlen(text) < 10
                               ? strtoul(text, NULL, 10)
                               : 0;

    if (number == 0 || number > HOSTS_SLOTS_MAX)
        return err_set(e, "\"%s\" is not a number of slots from 1 to %d", text,
                       HOSTS_SLOTS_MAX);
    *slots = (uint32_t)number;
    return 0;
}

static int add_host_entry(struct host_parser *p, const char *user, const char *node,
                          uint32_t slots, struct err *e)
{
    struct host_entry *entry;

    if (strlen(node) > HOST_NAME_MAX_BYTES)
        return err_set(e, "\"%.32s...\": a name of more than %d letters", node,
                       HOST_NAME_MAX_BYTES);
    /* a host may stand there once for each of its processes */
    if (p->count >= (size_t)NODES_MAX * 64)
        return err_set(e, "more than %d hosts", NODES_MAX * 64);
    if (p->count == p->capacity) {
        p->capacity = p->capacity ? 2 * p->capacity : 16;
        p->entry = xrealloc(p->entry, p->capacity * sizeof(*p->entry));
    }
    entry = &p->entry[p->count];
    *entry = (struct host_entry){ .name = *user ? xasprintf("%s@%s", user, node)
                                                : xstrdup(node),
                                  .slots = slots,
                                  .line = p->line,
                                  .index = p->count };
    p->count++;
    return 0;
}

/* The first character of a name that ssh or a person could take for something else. */
static const char *find_bad_letter(const char *name, const char *allowed)
{
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                          "0123456789._";
    const char *c = name;

    if (*c == '-')
        return c; /* an option of ssh */
    while (*c && (strchr(letters, *c) || strchr(allowed, *c)))
        c++;
    return *c ? c : NULL;
}

static bool is_ipv6(const char *text)
{
    char address[INET6_ADDRSTRLEN];
    struct in6_addr bytes;
    size_t length = strcspn(text, "%"); /* a scope, as in fe80::1%eth0 */

    if (length >= sizeof(address) || (text[length] && !text[length + 1]) ||
        find_bad_letter(text + length, "%-"))
        return false;
    memcpy(address, text, length);
    address[length] = '\0';
    return inet_pton(AF_INET6, address, &bytes) == 1;
}

/* Names with ranges in brackets stand for several hosts. */
static int add_ranges(struct host_parser *p, const char *user, const char *node,
                      uint32_t slots, struct err *e)
{
    struct host_list list = { .count = 0 };
    int rc = host_list_expand(node, &list, e);

    for (size_t i = 0; i < list.count && rc == 0; i++)
        rc = add_host_entry(p, user, list.name[i], slots, e);
    host_list_clear(&list);
    return rc;
}

static int add_host_node(struct host_parser *p, const char *user, const char *node,
                         uint32_t slots, struct err *e)
{
    const char *bad;

    if (is_ipv6(node))
        return add_host_entry(p, user, node, slots, e);
    bad = find_bad_letter(node, "-[,]");
    if (bad && *bad == ':')
        return err_set(
            e, "\"%s\" is not HOST:SLOTS; an IPv6 address is [ADDRESS]:SLOTS", node);
    if (bad && *bad == '/')
        return err_set(e, "\"%s\" is not a host; a file with hosts is for --hostfile",
                       node);
    if (!*node || bad || is_decimal(node))
        return err_set(e, "\"%s\" is not the name of a host", node);
    if (strpbrk(node, "[,]"))
        return add_ranges(p, user, node, slots, e);
    return add_host_entry(p, user, node, slots, e);
}

/* "[user@]node[:slots]"; item is cut into its parts. */
static int parse_item(struct host_parser *p, char *item, struct err *e)
{
    char *at = strchr(item, '@'), *node = at ? at + 1 : item, *colon, *end;
    const char *user = at ? item : "";
    uint32_t slots = 0;

    if (at) {
        *at = '\0';
        if (at == item || find_bad_letter(user, "-+\\") || strchr(node, '@'))
            return err_set(e, "\"%s@%s\" is not USER@HOST", user, node);
    }
    end = *node == '[' ? strchr(node, ']') : NULL;
    if (end && memchr(node, ':', (size_t)(end - node))) { /* [IPv6] */
        *end = '\0';
        if (!is_ipv6(node + 1) || (end[1] != '\0' && end[1] != ':'))
            return err_set(e, "\"%s]%s\" is not [IPv6 ADDRESS]:SLOTS", node, end + 1);
        node++;
        colon = end[1] ? end + 1 : NULL;
    } else {
        colon = is_ipv6(node) ? NULL : strrchr(node, ':');
    }
    if (colon) {
        *colon = '\0';
        if (parse_slots(colon + 1, &slots, e) < 0)
            return err_wrap(e, "%s", node);
    }
    return add_host_node(p, user, node, slots, e);
}

char *host_item_end(char *text)
{
    bool within = false;

    for (; *text && (within || *text != ','); text++)
        within = *text == '[' || (within && *text != ']');
    return text;
}

static int parse_items(struct host_parser *p, char *word, struct err *e)
{
    char *item = word;

    p->word_first = p->count;
    for (;;) {
        char *end = host_item_end(item);
        bool is_last = *end == '\0';

        *end = '\0';
        /* "a,b," ends in a comma, as lists that scripts write do */
        if ((*item || !is_last || item == word) && parse_item(p, item, e) < 0)
            return -1;
        if (is_last)
            return 0;
        item = end + 1;
    }
}

/* Slots after the names of their hosts. */
static int apply_slots(struct host_parser *p, size_t first, const char *number,
                       struct err *e)
{
    uint32_t slots;

    if (first == p->count)
        return err_set(e, "the name of a host comes before its slots");
    if (parse_slots(number, &slots, e) < 0)
        return -1;
    for (size_t i = first; i < p->count; i++) {
        if (p->entry[i].slots && p->entry[i].slots != slots)
            return err_set(e, "%s has %u slots and %u slots on one line",
                           p->entry[i].name, p->entry[i].slots, slots);
        p->entry[i].slots = slots;
    }
    return 0;
}

static int parse_setting(struct host_parser *p, char *word, struct err *e)
{
    /* what other launchers know and crun has no use for */
    static const char *const unused[] = { "max_slots", "max-slots", "binding", "bindto",
                                          "ifname",    "sockets",   "user",    NULL };
    char *value = strchr(word, '=');

    *value++ = '\0';
    if (strcmp(word, "slots") == 0 || strcmp(word, "np") == 0) {
        if (p->line_first < p->word_first)
            return err_set(e, "%s= stands on a line of one host, or say HOST:SLOTS",
                           word);
        return apply_slots(p, p->line_first, value, e);
    }
    for (const char *const *u = unused; *u; u++)
        if (strcmp(word, *u) == 0)
            return 0;
    return err_set(e, "\"%s=%s\" is not slots=N", word, value);
}

static int parse_word(struct host_parser *p, char *word, struct err *e)
{
    if (strchr(word, '='))
        return parse_setting(p, word, e);
    if (is_decimal(word))
        return apply_slots(p, p->word_first, word, e);
    return parse_items(p, word, e);
}

static int parse_words(struct host_parser *p, char *line, struct err *e)
{
    char **word = xcalloc(strlen(line) / 2 + 2, sizeof(*word)), *save = NULL;
    size_t count = 0;
    int rc = 0;

    for (char *w = strtok_r(line, BLANKS, &save); w; w = strtok_r(NULL, BLANKS, &save))
        word[count++] = w;
    /* "node1 8 all.q@node1 UNDEFINED" */
    if (count == 4 && is_decimal(word[1]) && strchr(word[2], '@') &&
        !is_decimal(word[3]))
        count = 2;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = parse_word(p, word[i], e);
    free(word);
    return rc;
}

static bool lines_are_numbered(const struct host_parser *p)
{
    size_t length = strlen(p->from);

    return length && p->from[length - 1] == ':';
}

static int parse_lines(struct host_parser *p, char *text, struct err *e)
{
    for (char *line; (line = strsep(&text, "\n"));) {
        p->line++;
        line[strcspn(line, "#")] = '\0';
        p->line_first = p->word_first = p->count;
        if (parse_words(p, line, e) == 0)
            continue;
        return lines_are_numbered(p) ? err_wrap(e, "%s%u", p->from, p->line)
                                     : err_wrap(e, "%s", p->from);
    }
    return 0;
}

static int compare_entry_names(const void *a, const void *b)
{
    const struct host_entry *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static int compare_indices(const void *a, const void *b)
{
    const struct host_entry *x = a, *y = b;

    return (x->index > y->index) - (x->index < y->index);
}

static int refuse_twice(const struct host_parser *p, const struct host_entry *first,
                        const struct host_entry *second, struct err *e)
{
    if (!lines_are_numbered(p))
        return err_set(e, "%s: %s stands there twice", p->from, second->name);
    return err_set(e, "%s%u: %s stands on line %u too", p->from, second->line,
                   second->name, first->line);
}

/* A host that is listed N times without slots has N. Then a host that is listed once
 * has 1. */
static int merge_entries(struct host_parser *p, struct err *e)
{
    size_t merged = 0;
    bool is_repeated = false;

    qsort(p->entry, p->count, sizeof(*p->entry), compare_entry_names);
    for (size_t i = 0, next; i < p->count; i = next) {
        struct host_entry *first = &p->entry[i];

        for (next = i + 1;
             next < p->count && strcmp(p->entry[next].name, first->name) == 0; next++)
            if (first->slots || p->entry[next].slots)
                return refuse_twice(p, first, &p->entry[next], e);
        if (next - i > HOSTS_SLOTS_MAX)
            return err_set(e, "%s %s stands there more than %d times", p->from,
                           first->name, HOSTS_SLOTS_MAX);
        is_repeated |= next - i > 1;
        for (size_t j = i + 1; j < next; j++) {
            free(p->entry[j].name);
            p->entry[j].name = NULL;
        }
        first->times = (uint32_t)(next - i);
        p->entry[merged++] = *first;
        if (merged - 1 != i)
            first->name = NULL;
    }
    p->count = merged;
    if (merged > NODES_MAX)
        return err_set(e, "%s more than %d hosts", p->from, NODES_MAX);
    qsort(p->entry, p->count, sizeof(*p->entry), compare_indices);
    for (size_t i = 0; i < p->count && is_repeated; i++)
        if (p->entry[i].slots == 0)
            p->entry[i].slots = p->entry[i].times;
    return 0;
}

int hosts_parse(const char *text, const char *from, struct hosts *h, struct err *e)
{
    struct host_parser p = { .from = from };
    char *copy = xstrdup(text);
    int rc = parse_lines(&p, copy, e);

    if (rc == 0 && p.count)
        rc = merge_entries(&p, e);
    if (rc == 0) {
        h->host = xrealloc(h->host, (h->count + p.count + 1) * sizeof(*h->host));
        for (size_t i = 0; i < p.count; i++) {
            h->host[h->count++] = (struct host){ .name = p.entry[i].name,
                                                 .slots = p.entry[i].slots };
            p.entry[i].name = NULL;
        }
    }
    for (size_t i = 0; i < p.count; i++)
        free(p.entry[i].name);
    free(p.entry);
    free(copy);
    return rc;
}
