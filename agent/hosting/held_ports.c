/* SPDX-License-Identifier: MIT */
#include "agent/hosting/held_ports.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/net.h"

static void hold_port(struct held_ports *h, const char *name, char *text, size_t size)
{
    uint16_t port = 0;
    int fd = net_hold_port(&port);

    if (fd < 0)
        return;
    h->fd[h->count++] = fd;
    snprintf(text, size, "%s%s=%u", h->count > 1 ? " " : "", name, (unsigned)port);
}

void held_ports_renew(struct held_ports *h, const char names[][FREE_PORT_NAME_MAX + 1],
                      char *text, size_t size)
{
    struct held_ports next = { .count = 0 };
    size_t used = 0;

    *text = '\0';
    hold_port(&next, "", text, size);
    for (unsigned i = 0; i < FREE_PORTS_MAX && *names[i]; i++) {
        used += strlen(text + used);
        hold_port(&next, names[i], text + used, size - used);
    }
    held_ports_close(h);
    *h = next;
}

void held_ports_close(struct held_ports *h)
{
    while (h->count > 0)
        close(h->fd[--h->count]);
}
