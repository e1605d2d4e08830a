/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/protocol/port_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT_DIGITS_MAX 5

bool port_list_next(const char **at, uint16_t *port)
{
    for (;;) {
        const char *word = *at + strspn(*at, " ");
        size_t length = strcspn(word, " ");
        unsigned long value = 0;

        if (length == 0)
            return false;
        *at = word + length;
        if (length <= PORT_DIGITS_MAX && strspn(word, "0123456789") == length)
            value = strtoul(word, NULL, 10);
        if (value > 0 && value <= UINT16_MAX) {
            *port = (uint16_t)value;
            return true;
        }
    }
}

bool port_list_has(const char *list, uint16_t port)
{
    uint16_t other;

    while (port_list_next(&list, &other))
        if (other == port)
            return true;
    return false;
}

void port_list_add(char *buf, size_t size, uint16_t port)
{
    size_t used = strlen(buf);
    char word[PORT_DIGITS_MAX + 2];
    int length = snprintf(word, sizeof(word), "%s%u", used ? " " : "", port);

    if (used + (size_t)length < size)
        memcpy(buf + used, word, (size_t)length + 1);
}
