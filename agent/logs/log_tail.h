/* SPDX-License-Identifier: MIT */
#ifndef AGENT_LOGS_LOG_TAIL_H
#define AGENT_LOGS_LOG_TAIL_H

#include <stddef.h>

struct log_ring;

/*
 * The end of a stream as a terminal would show it, as plain text: the last drawing of a
 * line with carriage returns, no escape sequences, valid UTF-8. The last whole lines,
 * at most size - 1 bytes. Returns text.
 */
char *log_tail_text(const struct log_ring *r, char *text, size_t size);

#endif
