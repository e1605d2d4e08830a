/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdio.h>

#include "launcher/crunctl/ui/terminal.h"
#include "launcher/crunctl/ui/top_view.h"

/*
 * One frame: a title, the rows or a page, what the selected row has, and the keys. It
 * notes in the view how much room there is. Pure.
 */
void top_frame_print(struct top_view *v, const struct top_look *look,
                     const struct top_rows *rows, const struct terminal *t, FILE *out);
