/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* As much of PyTorch's TCPStore client as a little all-gather needs. Blocks; false once
 * the connection is lost. */
bool chain_store_connect(const char *host, const char *port, unsigned seconds);
bool chain_store_set(const char *key, const char *value);
/* Waits for the key. */
bool chain_store_get(const char *key, char *value, size_t size);
bool chain_store_delete(const char *key);
void chain_store_close(void);
