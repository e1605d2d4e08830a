/* SPDX-License-Identifier: MIT */
#pragma once

#include "launcher/plan/config_build.h"
#include "launcher/plan/scheduler_defaults.h"

/* Of this node: from -np or --nproc-per-node, a number, "gpu", "cpu" or "auto". */
int worker_count_find(const struct options *o, const struct machine *m,
                      uint32_t *workers, struct err *e) MUST_CHECK;
/* Where a scheduler starts this crun, and no number is given. */
void worker_count_by_node(struct options *o, const struct defaults_machine *m,
                          const struct scheduler_node *n);
