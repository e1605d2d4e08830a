/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The plural ending of a noun: "" for one, "s" for any other number. */
const char *text_plural(uint64_t n);

/* "TERM" for SIGTERM; NULL for a number without a name. */
const char *text_signal(int signo);

/* The size of the UTF-8 character at the beginning of text, 0 if there is none. */
size_t text_utf8_size(const char *text, size_t size);

bool text_is_utf8(const char *text, size_t size);

/* Copies as many whole characters as fit. Returns buf. */
char *text_cut(const char *text, char *buf, size_t size);

/*
 * How many bytes the printable character at text takes, of `size` bytes at most: ASCII,
 * or UTF-8 except the controls at U+0080 to U+009F, which some terminals obey, and
 * those that turn the direction of text. 0: the first byte must not reach a terminal.
 * Each text that is not ours goes through this function before it is shown.
 */
size_t text_printable_size(const char *text, size_t size);

/* The text for a line of output: unprintable bytes become \xNN, and anything that does
 * not fit in size is cut off. Returns buf. */
char *text_printable(const char *text, char *buf, size_t size);

/* The same for a string of JSON: \u00NN, and before " and \ a backslash. */
char *text_json_string(const char *text, char *buf, size_t size);

/* Makes of the bytes that a program has written the text that a terminal would show, in
 * place, without what must not reach one: of a line with carriage returns the last
 * drawing, no escape sequences, "?" for other unprintable bytes. Returns the new size.
 */
size_t text_drawn(char *text, size_t size);

/* Takes printed JSON and frees it. Returns JSON of the same value with unprintable
 * characters as \uNNNN, to be freed by the caller; NULL stays NULL. */
char *text_printable_json(char *json);
