/* SPDX-License-Identifier: MIT */
#pragma once

#include "launcher/crunctl/ui/screen.h"
#include "launcher/crunctl/ui/top_asker.h"

/* Shows the jobs until the user has seen enough. */
void top_show(struct screen *s, const struct top_source *source, uint64_t every_ms);
