/* SPDX-License-Identifier: MIT */
#include "agent/workers/macros.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"

/* torchrun's macro, and crun's own, which count only in braces: programs and shells may
 * have a $rank of their own. */
enum macro_kind {
    MACRO_LOCAL_RANK,
    MACRO_RANK,
    MACRO_WORLD_SIZE,
    MACRO_NODE_RANK,
    MACRO_NNODES,
    MACRO_LOCAL_WORLD_SIZE,
    MACRO_MASTER_PORT,
    MACRO_FREE_PORT,
    MACRO_MASTER_ADDR,
    MACRO_COUNT
};

static const char *const macro_names[MACRO_COUNT] = {
    [MACRO_LOCAL_RANK] = "local_rank",   [MACRO_RANK] = "rank",
    [MACRO_WORLD_SIZE] = "world_size",   [MACRO_NODE_RANK] = "node_rank",
    [MACRO_NNODES] = "nnodes",           [MACRO_LOCAL_WORLD_SIZE] = "local_world_size",
    [MACRO_MASTER_PORT] = "master_port", [MACRO_FREE_PORT] = "free_port",
    [MACRO_MASTER_ADDR] = "master_addr",
};

#define NAMED_PORT "${free_port:"

struct macro {
    enum macro_kind kind;
    char port[FREE_PORT_NAME_MAX + 1]; /* the NAME of ${free_port:NAME}; "": none */
};

/* What macros stand for, for one worker. */
struct macro_values {
    uint32_t number[MACRO_COUNT];
    const char *master_addr, *ports;
};

/* The length of the word of letters, digits and "_" at the start of text. */
static size_t word_length(const char *text)
{
    size_t n = 0;

    while (text[n] == '_' || (isalnum((unsigned char)text[n]) && isascii(text[n])))
        n++;
    return n;
}

/* For text at a "$": the length of the macro, or 0 if it is not one. */
static size_t find_macro(const char *text, struct macro *macro)
{
    bool braced = text[1] == '{';
    const char *name = text + 1 + braced;
    size_t length = word_length(name), port = 0;
    int count = braced ? MACRO_COUNT : MACRO_LOCAL_RANK + 1;

    *macro = (struct macro){ .kind = MACRO_LOCAL_RANK };
    if (braced && strncmp(text, NAMED_PORT, strlen(NAMED_PORT)) == 0) {
        port = word_length(name + length + 1);
        if (port == 0 || port > FREE_PORT_NAME_MAX)
            return 0;
        memcpy(macro->port, name + length + 1, port++);
    }
    if (braced && name[length + port] != '}')
        return 0;
    for (int i = 0; i < count; i++)
        if (strlen(macro_names[i]) == length &&
            memcmp(macro_names[i], name, length) == 0) {
            macro->kind = (enum macro_kind)i;
            return 1 + length + port + (braced ? 2 : 0);
        }
    return 0;
}

/* For text at a "$": whether a second one protects a macro from being replaced. */
static bool is_protected(const char *text)
{
    struct macro macro;

    return text[1] == '$' && find_macro(text + 1, &macro) > 0;
}

static size_t macro_value(const struct macro_values *v, const struct macro *macro,
                          char *buf, size_t size)
{
    uint32_t number = macro->kind == MACRO_FREE_PORT
                          ? macros_port(v->ports, macro->port)
                          : v->number[macro->kind];

    if (macro->kind == MACRO_MASTER_ADDR)
        return (size_t)snprintf(buf, size, "%s", v->master_addr);
    return (size_t)snprintf(buf, size, "%" PRIu32, number);
}

/*
 * Writes to out, unless that is NULL. Returns the size with the NUL. A second dollar
 * sign before it protects a macro; other dollar signs, such as a shell's $$, are left
 * alone (torchrun halves them).
 */
static size_t substitute_macros(const char *text, const struct macro_values *values,
                                char *out)
{
    char value[ADDRESS_MAX_BYTES + 1];
    struct macro macro;
    size_t used = 0;

    while (*text) {
        bool escaped = *text == '$' && is_protected(text);
        size_t skip = escaped ? 2 : *text == '$' ? find_macro(text, &macro) : 0;
        bool replaced = skip > 0 && !escaped;
        size_t length = replaced ? macro_value(values, &macro, value, sizeof(value))
                                 : 1;

        if (out)
            memcpy(out + used, replaced ? value : text, length);
        used += length;
        text += skip ? skip : 1;
    }
    if (out)
        out[used] = '\0';
    return used + 1;
}

const char **macros_replace(const struct config *config, const struct msg_start *start,
                            uint32_t local_rank)
{
    const struct macro_values values = {
        .number = { [MACRO_LOCAL_RANK] = local_rank,
                    [MACRO_RANK] = start->first_rank + local_rank,
                    [MACRO_WORLD_SIZE] = start->world_size,
                    [MACRO_NODE_RANK] = start->group_rank,
                    [MACRO_NNODES] = start->group_size,
                    [MACRO_LOCAL_WORLD_SIZE] = config->workers,
                    [MACRO_MASTER_PORT] = start->port },
        .master_addr = start->address,
        .ports = start->free_ports,
    };
    const char *const *from = config->argv;
    size_t n = 0, bytes = 0;
    const char **argv;
    char *text;

    for (; from[n]; n++)
        bytes += n ? substitute_macros(from[n], &values, NULL) : 0;
    argv = xmalloc((n + 1) * sizeof(*argv) + bytes);
    text = (char *)(argv + n + 1);
    argv[0] = from[0];
    for (size_t i = 1; i < n; i++) {
        argv[i] = text;
        text += substitute_macros(from[i], &values, text);
    }
    argv[n] = NULL;
    return argv;
}

/* -- ports of rank 0's host ----------------------------------------------------- */

static int add_port(struct config *config, const char *name, struct err *e)
{
    unsigned i = 0;

    while (i < FREE_PORTS_MAX && *config->free_ports[i]) {
        if (strcmp(config->free_ports[i], name) == 0)
            return 0;
        i++;
    }
    if (i == FREE_PORTS_MAX)
        return err_set(e, NAMED_PORT "%s}: more than %d names of ports", name,
                       FREE_PORTS_MAX);
    memcpy(config->free_ports[i], name, strlen(name) + 1);
    return 0;
}

int macros_find_ports(const char *const *arguments, struct config *config,
                      struct err *e)
{
    struct macro macro;

    for (; *arguments; arguments++)
        for (const char *at = *arguments; (at = strchr(at, '$')); at++) {
            bool named = strncmp(at, NAMED_PORT, strlen(NAMED_PORT)) == 0;

            if (is_protected(at)) {
                at++;
                continue;
            }
            if (named && find_macro(at, &macro) == 0)
                return err_set(e,
                               "%s: the name after \"" NAMED_PORT "\" has 1 to %d "
                               "letters, digits and \"_\", and then a \"}\"",
                               *arguments, FREE_PORT_NAME_MAX);
            if (named && add_port(config, macro.port, e) < 0)
                return -1;
        }
    return 0;
}

uint32_t macros_port(const char *ports, const char *name)
{
    size_t length = strlen(name);

    for (; *ports; ports += strcspn(ports, " "), ports += *ports == ' ')
        if (strncmp(ports, name, length) == 0 && ports[length] == '=')
            return (uint32_t)strtoul(ports + length + 1, NULL, 10);
    return 0;
}

const char *macros_lacking_port(const struct config *config,
                                const struct msg_start *start, char *buf, size_t size)
{
    struct macro macro;

    for (const char *const *a = config->argv + 1; *a; a++)
        for (const char *at = *a; (at = strchr(at, '$')); at++) {
            size_t length = is_protected(at) ? 0 : find_macro(at, &macro);

            at += is_protected(at);
            if (length == 0 || macro.kind != MACRO_FREE_PORT ||
                macros_port(start->free_ports, macro.port))
                continue;
            snprintf(buf, size, "%.*s", (int)length, at);
            return buf;
        }
    return NULL;
}
