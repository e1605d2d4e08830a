/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ports in a message: "41234 41236". */

/* Takes the next port from the list at *at. Words that are no ports are skipped. False:
 * there are no more. */
bool port_list_next(const char **at, uint16_t *port);
bool port_list_has(const char *list, uint16_t port);
/* Adds the port to the list in buf, unless there is no room for it. */
void port_list_add(char *buf, size_t size, uint16_t port);
