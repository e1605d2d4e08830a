/* SPDX-License-Identifier: MIT */
#pragma once

#include "tests/worlds/ranks.h"

/* That many groups, one after another, leave no keys in the store, and no threads,
 * descriptors or mappings in the process; and of memory less than bytes_each for each
 * of them, for what threads and pools keep. */
void split_leaks_check(const struct ranks_config *config, unsigned splits,
                       size_t bytes_each);
