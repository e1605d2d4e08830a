/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_CRUNCTL_TOP_TOP_H
#define LAUNCHER_CRUNCTL_TOP_TOP_H

#include "launcher/crunctl/top/top_asker.h"
#include "launcher/crunctl/ui/screen.h"

/* Shows the jobs until the user has seen enough. */
void top_show(struct screen *s, const struct top_source *source, uint64_t every_ms);

#endif
