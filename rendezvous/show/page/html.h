/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_SHOW_PAGE_HTML_H
#define RENDEZVOUS_SHOW_PAGE_HTML_H

#include <stdint.h>
#include <stdio.h>

/*
 * The only way in which texts come into a page. The markup is valid as XML, too: each
 * element is closed, each attribute is quoted.
 */

/* A text as content of an element or of a quoted attribute: markup is escaped, and what
 * is not printable, or turns the direction of text, becomes U+FFFD. Tabs and newlines
 * stay. NULL is "". */
void html_text(FILE *out, const char *text);
void html_bytes(FILE *out, const char *text, size_t size);

/* As fprintf, but the texts of %s go through html_text. It knows %s, %c, %d, %u, %lu,
 * %zu, %f and %g with a precision, and %%. */
void html_print(FILE *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* One segment of a path in a link: all but letters, digits, "-", "_" and "." as %XX. */
void html_path_segment(FILE *out, const char *text);

#endif
