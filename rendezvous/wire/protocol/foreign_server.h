/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

/* What listens on a port where a rendezvous was expected. Pure: bytes in, words out. */

/* "an HTTP server", by the first bytes that it sends; NULL: they do not tell. */
const char *foreign_server_name(const void *data, size_t size);
