/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The process that listens on a TCP port of this machine: "4711 (crund)", or
 * "a process of user bob", of which no more is shown. False if there is none. Reads all
 * of /proc, so it is only for error messages.
 */
bool port_owner_find(uint16_t port, char *text, size_t size);
