/* SPDX-License-Identifier: MIT */
#include "launcher/hosts/host_select.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/xalloc.h"
#include "rendezvous/scheduler/host_list.h"

/* What a selection says of one host. */
struct host_choice {
    bool whole;
    bool *slot; /* HOSTS_SLOTS_MAX of them; NULL: none is named */
};

static const char *host_node(const struct host *host)
{
    const char *at = strchr(host->name, '@');

    return at ? at + 1 : host->name;
}

static int choose_host(const struct hosts *h, const char *name,
                       struct host_choice *choice, const char *slots, struct err *e)
{
    size_t found = 0;

    for (size_t i = 0; i < h->count; i++) {
        if (strcmp(host_node(&h->host[i]), name) != 0)
            continue;
        found++;
        choice[i].whole |= slots == NULL;
        if (slots && !choice[i].slot)
            choice[i].slot = xcalloc(HOSTS_SLOTS_MAX, sizeof(bool));
        for (const char *s = slots; s && *s; s += strspn(s, ",")) {
            char *end;
            unsigned long slot = strtoul(s, &end, 10);

            if (h->host[i].slots && slot >= h->host[i].slots)
                return err_set(e, "%s has no slot %lu; its %u slots are 0 to %u", name,
                               slot, h->host[i].slots, h->host[i].slots - 1);
            if (slot >= HOSTS_SLOTS_MAX)
                return err_set(e, "%s has no slot %lu", name, slot);
            choice[i].slot[slot] = true;
            s = end;
        }
    }
    return found ? 0 : err_set(e, "%s is none of the hosts", name);
}

/* The end of "0,2" at the beginning of text: the comma before a name is not of it. */
static size_t measure_slots(const char *text)
{
    size_t length = 0;

    for (;;) {
        size_t digits = strspn(text + length, "0123456789"), end = length + digits;

        if (digits == 0 || digits > 9 || (text[end] && !strchr(",@", text[end])))
            return length ? length - 1 : 0;
        if (text[end] != ',')
            return end;
        length = end + 1;
    }
}

/* The end of a node's name, which may be an IPv6 address or a list in brackets. */
static size_t measure_name(const char *text)
{
    size_t length = 0;
    bool within = false;

    for (; text[length] && (within || !strchr(",@:", text[length])); length++)
        within = text[length] == '[' || (within && text[length] != ']');
    return length;
}

static int choose_named(const struct hosts *h, char *name, struct host_choice *choice,
                        const char *slots, struct err *e)
{
    struct host_list list = { .count = 0 };
    char *bracket = strchr(name, '[');
    size_t length = strlen(name);
    int rc = 0;

    if (!*name)
        return err_set(e, "the name of a host is missing");
    if (bracket == name && strchr(name, ':') && name[length - 1] == ']') {
        name[length - 1] = '\0';
        return choose_host(h, name + 1, choice, slots, e);
    }
    if (!bracket)
        return choose_host(h, name, choice, slots, e);
    if (host_list_expand(name, &list, e) < 0)
        return -1;
    for (size_t i = 0; i < list.count && rc == 0; i++)
        rc = choose_host(h, list.name[i], choice, slots, e);
    host_list_clear(&list);
    return rc;
}

static int parse_choices(const char *text, const struct hosts *h,
                         struct host_choice *choice, struct err *e)
{
    char *copy = xstrdup(text), *next = copy;
    int rc = 0;

    while (rc == 0) {
        char *name = next, *slots = NULL, end;

        next += measure_name(next);
        end = *next;
        *next = '\0';
        if (end == ':') {
            slots = next + 1;
            next = slots + measure_slots(slots);
            end = *next;
            *next = '\0';
            if (next == slots || (end && !strchr(",@", end)))
                rc = err_set(e, "%s:%s%c%s: numbers of slots are missing, as in %s:0,2",
                             name, slots, end ? end : ' ', end ? next + 1 : "", name);
        }
        if (rc == 0)
            rc = choose_named(h, name, choice, slots, e);
        if (end == '\0')
            break;
        next++;
    }
    free(copy);
    return rc;
}

/* The slots that are left become the host's devices. 0: none is left. */
static uint32_t set_devices(struct host *host, const struct host_choice *choice,
                            bool wanted)
{
    uint32_t limit = wanted && !host->slots ? HOSTS_SLOTS_MAX : host->slots, left = 0;
    char *text = xcalloc((size_t)limit + 1, 5), *out = text;

    for (uint32_t i = 0; i < limit; i++)
        if (choice->slot[i] == wanted) {
            out += sprintf(out, "%s%u", left ? "," : "", i);
            left++;
        }
    free(host->devices);
    host->devices = text;
    host->slots = left;
    return left;
}

/* Drops hosts and slots. wanted: the chosen ones stay, else the others. */
static int apply_choices(struct hosts *h, const struct host_choice *choice, bool wanted,
                         struct err *e)
{
    size_t count = 0;

    for (size_t i = 0; i < h->count; i++) {
        struct host *host = &h->host[i];
        bool keep;

        if (!wanted && choice[i].slot && !choice[i].whole && host->slots == 0)
            return err_set(e, "how many slots %s has is not known: name it as %s:N",
                           host->name, host->name);
        if (choice[i].whole || !choice[i].slot)
            keep = choice[i].whole == wanted;
        else
            keep = set_devices(host, &choice[i], wanted) > 0;
        if (keep) {
            h->host[count++] = *host;
        } else {
            free(host->name);
            free(host->devices);
        }
        if (!keep || count - 1 != i)
            *host = (struct host){ .name = NULL };
    }
    h->count = count;
    return count ? 0 : err_set(e, "no host is left");
}

static int select_hosts(const char *text, struct hosts *h, bool wanted, struct err *e)
{
    struct host_choice *choice = xcalloc(h->count + 1, sizeof(*choice));
    size_t count = h->count;
    int rc = parse_choices(text, h, choice, e);

    if (rc == 0)
        rc = apply_choices(h, choice, wanted, e);
    for (size_t i = 0; i < count; i++)
        free(choice[i].slot);
    free(choice);
    return rc < 0 ? err_wrap(e, "%s", wanted ? "--include" : "--exclude") : 0;
}

int host_select_include(const char *text, struct hosts *h, struct err *e)
{
    return select_hosts(text, h, true, e);
}

int host_select_exclude(const char *text, struct hosts *h, struct err *e)
{
    return select_hosts(text, h, false, e);
}
