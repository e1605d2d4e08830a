/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/environment/host_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rendezvous/common/base/limits.h"

#define SEPARATORS ", \t\r\n"
#define DIGITS "0123456789"
#define NUMBER_DIGITS_MAX 9

/* The names so far, each longer by what follows it. */
struct host_names {
    struct host_list list;
    size_t room;
};

/* This library's users include a program's own process: no memory is an error. */
static int host_list_refuse_memory(struct err *e)
{
    return err_set(e, "out of memory");
}

static int host_names_add(struct host_names *names, const char *head, const char *tail,
                          size_t tail_length, struct err *e)
{
    size_t head_length = strlen(head), length = head_length + tail_length;
    char *name;

    if (length > HOST_NAME_MAX_BYTES)
        return err_set(e, "a name of a host has more than %d letters",
                       HOST_NAME_MAX_BYTES);
    if (names->list.count == HOST_LIST_MAX)
        return err_set(e, "a list of more than %d hosts", HOST_LIST_MAX);
    if (names->list.count == names->room) {
        size_t room = names->room ? 2 * names->room : 16;
        char **grown = realloc(names->list.name, room * sizeof(*grown));

        if (!grown)
            return host_list_refuse_memory(e);
        names->list.name = grown;
        names->room = room;
    }
    name = malloc(length + 1);
    if (!name)
        return host_list_refuse_memory(e);
    memcpy(name, head, head_length);
    memcpy(name + head_length, tail, tail_length);
    name[length] = '\0';
    names->list.name[names->list.count++] = name;
    return 0;
}

/* -- the ranges of a bracket ------------------------------------------------------- */

struct host_range {
    unsigned long first, last;
    int digits; /* zeros in front make a number as long as this */
};

/* Reads the number at *text and advances *text. -1: there is none. */
static int host_range_read_number(const char **text, unsigned long *number)
{
    size_t digits = strspn(*text, DIGITS);

    if (digits == 0 || digits > NUMBER_DIGITS_MAX)
        return -1;
    *number = strtoul(*text, NULL, 10);
    *text += digits;
    return 0;
}

/* Reads "7" or "07-12" at *text and advances *text, also over a comma. */
static int host_range_read(const char **text, struct host_range *r)
{
    const char *first = *text;

    if (host_range_read_number(text, &r->first) < 0)
        return -1;
    r->digits = (int)(*text - first);
    r->last = r->first;
    if (**text == '-') {
        ++*text;
        if (host_range_read_number(text, &r->last) < 0 || r->last < r->first)
            return -1;
    }
    if (**text == ',') /* a comma is followed by another range */
        return *++*text == ']' ? -1 : 0;
    return **text == ']' ? 0 : -1;
}

/* The name, with each number of the ranges at `text` behind it. */
static int host_names_add_ranges(struct host_names *names, const char *name,
                                 const char *text, struct err *e)
{
    char digits[24];
    struct host_range r;

    while (*text != ']') {
        if (host_range_read(&text, &r) < 0)
            return err_set(e, "\"[%.40s\" is not a range, as in [01-16,20]", text);
        for (unsigned long number = r.first; number <= r.last; number++) {
            int length = snprintf(digits, sizeof(digits), "%0*lu", r.digits, number);

            if (host_names_add(names, name, digits, (size_t)length, e) < 0)
                return -1;
        }
    }
    return 0;
}

/* -- items ------------------------------------------------------------------------- */

/* Extends each name by the piece: a bracket with its ranges, or plain letters. */
static int host_names_extend(struct host_names *names, const char *piece, size_t length,
                             struct err *e)
{
    struct host_names longer = { 0 };
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < names->list.count; i++)
        rc = *piece == '['
                 ? host_names_add_ranges(&longer, names->list.name[i], piece + 1, e)
                 : host_names_add(&longer, names->list.name[i], piece, length, e);
    host_list_clear(&names->list);
    *names = longer;
    return rc;
}

static bool is_letter_of_host(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("._-:@%+", c)) || (unsigned char)c >= 0x80;
}

/* The size of the piece at `text`, a bracket or plain letters. 0: none of them. */
static size_t host_piece_size(const char *text)
{
    size_t size = 0;

    if (*text == '[') {
        size = strcspn(text, "]");
        return text[size] && size > 1 ? size + 1 : 0;
    }
    while (is_letter_of_host(text[size]))
        size++;
    return size;
}

/* The names of the item at *text, which is advanced to its end. */
static int host_list_read_item(const char **text, struct host_names *names,
                               struct err *e)
{
    const char *item = *text;
    int rc = host_names_add(names, "", "", 0, e);

    while (rc == 0 && **text && !strchr(SEPARATORS, **text)) {
        size_t size = host_piece_size(*text);

        if (size == 0)
            return err_set(e, "\"%.80s\" is not a list of hosts, as in n1,gpu[01-16]",
                           item);
        rc = host_names_extend(names, *text, size, e);
        *text += size;
    }
    return rc;
}

static int host_names_move(struct host_names *names, struct host_names *to,
                           struct err *e)
{
    for (size_t i = 0; i < names->list.count; i++)
        if (host_names_add(to, names->list.name[i], "", 0, e) < 0)
            return -1;
    return 0;
}

int host_list_expand(const char *list, struct host_list *l, struct err *e)
{
    struct host_names all = { 0 };
    int rc = 0;

    while (rc == 0 && *(list += strspn(list, SEPARATORS))) {
        struct host_names item = { 0 };

        rc = host_list_read_item(&list, &item, e);
        if (rc == 0)
            rc = host_names_move(&item, &all, e);
        host_list_clear(&item.list);
    }
    if (rc < 0)
        host_list_clear(&all.list);
    *l = all.list;
    return rc;
}

void host_list_clear(struct host_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->name[i]);
    free(l->name);
    *l = (struct host_list){ 0 };
}

/* -- which host -------------------------------------------------------------------- */

/* The length of a name without its domain. An address has none. */
static size_t host_label_length(const char *host)
{
    size_t label = strcspn(host, ".");

    return strchr(host, ':') || host[strspn(host, DIGITS ".")] == '\0' ? strlen(host)
                                                                       : label;
}

bool host_list_is_same(const char *a, const char *b)
{
    size_t label = host_label_length(a);
    bool has_domains = a[label] && b[host_label_length(b)];

    if (!*a || has_domains)
        return *a && strcasecmp(a, b) == 0;
    return host_label_length(b) == label && strncasecmp(a, b, label) == 0;
}

long host_list_find(const struct host_list *l, const char *host)
{
    for (size_t i = 0; i < l->count; i++)
        if (host_list_is_same(l->name[i], host))
            return (long)i;
    return -1;
}
