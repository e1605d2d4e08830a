/* SPDX-License-Identifier: MIT */
#include "agent/hosting/own_name.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "rendezvous/common/base/limits.h"

#define HOSTS_LINE_SIZE 1024

/* Calls fn for each name of the file with its address, until it returns true. */
static bool hosts_file_each(const char *path,
                            bool (*fn)(void *arg, const struct net_addr *addr,
                                       const char *name),
                            void *arg)
{
    FILE *f = fopen(path, "re");
    char line[HOSTS_LINE_SIZE];
    bool found = false;

    while (f && !found && fgets(line, sizeof(line), f)) {
        char *rest = line, *word;
        struct net_addr addr;
        struct err e;

        line[strcspn(line, "#\n")] = '\0';
        word = strtok_r(rest, " \t\r", &rest);
        if (!word || net_parse_host(word, 0, &addr, &e) < 0)
            continue;
        while (!found && (word = strtok_r(NULL, " \t\r", &rest)))
            found = fn(arg, &addr, word);
    }
    if (f)
        fclose(f);
    return found;
}

/* The names without the dot that a full one may end with. */
static size_t name_length(const char *name)
{
    size_t n = strlen(name);

    return n > 0 && name[n - 1] == '.' ? n - 1 : n;
}

static bool host_names_match(const char *a, const char *b)
{
    size_t n = name_length(a);

    return n == name_length(b) && strncasecmp(a, b, n) == 0;
}

struct name_search {
    const char *name;
    uint16_t port;
    struct net_addr *list;
    size_t count, max;
};

static bool add_address(void *arg, const struct net_addr *addr, const char *name)
{
    struct name_search *s = arg;

    if (s->count == s->max || !host_names_match(name, s->name))
        return false;
    s->list[s->count] = *addr;
    net_set_port(&s->list[s->count++], s->port);
    return false;
}

size_t own_name_find(const char *hosts_file, const char *name, uint16_t port,
                     struct net_addr *list, size_t max)
{
    struct name_search s = { .name = name, .port = port, .list = list, .max = max };

    (void)hosts_file_each(hosts_file, add_address, &s);
    return s.count;
}

static bool begins_with_name(void *arg, const struct net_addr *addr, const char *name)
{
    const char *begin = arg;
    size_t n = name_length(begin);

    return strncasecmp(name, begin, n) == 0 && name[n] == '.' && net_is_local(addr) &&
           !net_is_loopback(addr);
}

bool own_name_is(const char *hosts_file, const char *name)
{
    char host[HOST_NAME_MAX_BYTES + 1] = "";
    size_t label = strcspn(name, ".");

    if (gethostname(host, sizeof(host) - 1) == 0 && label > 0 &&
        strcspn(host, ".") == label && strncasecmp(host, name, label) == 0)
        return true;
    return hosts_file_each(hosts_file, begins_with_name, (void *)(uintptr_t)name);
}
