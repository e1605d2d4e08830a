/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdio.h>

#include "launcher/crunctl/ui/terminal.h"
#include "launcher/crunctl/ui/top_view.h"

/* The page that is open, all of it: of a job, of a node, its log or stacks, or of the
 * keys. Pure. */
void top_page_print(const struct top_view *v, const struct top_look *look,
                    const struct terminal *t, FILE *out);
