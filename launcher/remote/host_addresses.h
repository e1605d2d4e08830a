/* SPDX-License-Identifier: MIT */
#pragma once

/* The addresses of this machine at which other hosts may reach it, as numbers: first
 * the one to which ssh connected (`connection` is SSH_CONNECTION, or NULL), last those
 * of bridges to containers, which every host has. NULL-ended; the caller frees each,
 * and the list. */
char **host_addresses_list(const char *connection);
