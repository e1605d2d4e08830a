/* SPDX-License-Identifier: MIT */
#ifndef AGENT_LOGS_LOG_TAIL_H
#define AGENT_LOGS_LOG_TAIL_H

#include <stddef.h>
#include <stdint.h>

/*
 * The last LOG_TAIL_BYTES of a stream, for the report of a failure. Allocated at the
 * first byte. Zero-initialise.
 */
struct log_tail {
    char *ring;
    size_t end;            /* where the next byte goes */
    size_t size;           /* bytes in it */
    uint64_t written_ms;   /* when the last bytes came; 0: none came */
    uint64_t traceback_ms; /* when the last traceback began; 0: none did */
};

void log_tail_add(struct log_tail *t, const char *data, size_t size);
/* The same bytes came at now_ms. */
void log_tail_stamp(struct log_tail *t, const char *data, size_t size, uint64_t now_ms);

/*
 * The text that a terminal would show, as plain text: the last drawing of a line with
 * carriage returns, no escape sequences, valid UTF-8. The last whole lines, at most
 * size - 1 bytes. Returns text.
 */
char *log_tail_text(const struct log_tail *t, char *text, size_t size);

/* Forgets all. */
void log_tail_fini(struct log_tail *t);

#endif
