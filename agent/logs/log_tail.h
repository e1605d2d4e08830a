/* SPDX-License-Identifier: MIT */
#ifndef AGENT_LOGS_LOG_TAIL_H
#define AGENT_LOGS_LOG_TAIL_H

#include <stddef.h>

/*
 * The last LOG_TAIL_BYTES of a stream, for the report of a failure. Allocated at the
 * first byte. Zero-initialise.
 */
struct log_tail {
    char *ring;
    size_t end;  /* where the next byte goes */
    size_t size; /* bytes in it */
};

void log_tail_add(struct log_tail *t, const char *data, size_t size);

/*
 * The text that a terminal would show, as plain text: the last drawing of a line with
 * carriage returns, no escape sequences, valid UTF-8. The last whole lines, at most
 * size - 1 bytes. Returns text.
 */
char *log_tail_text(const struct log_tail *t, char *text, size_t size);

/* Forgets all. */
void log_tail_fini(struct log_tail *t);

#endif
