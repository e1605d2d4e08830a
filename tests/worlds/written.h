/* SPDX-License-Identifier: MIT */
#pragma once

struct outlet;

/* An outlet of a writer of its own, and what was written through it. */
struct outlet *written_begin(void);
/* Ends the writer; valid until the next one begins. */
const char *written_end(void);
