/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_SHOW_PAGE_FIELDS_H
#define RENDEZVOUS_SHOW_PAGE_FIELDS_H

#include <cjson/cJSON.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The members of JSON objects that may lack them or be of another type, and how numbers
 * are written for people. */

const char *field_text(const cJSON *o, const char *name); /* "": none */
double field_number(const cJSON *o, const char *name);    /* finite, or NaN */
uint64_t field_count(const cJSON *o, const char *name);   /* 0: none; at most 2^53 */
bool field_is_true(const cJSON *o, const char *name);
const cJSON *field_object(const cJSON *o, const char *name); /* NULL: none */
/* The first item of an array, NULL: none; the others follow by ->next. */
const cJSON *field_items(const cJSON *o, const char *name);

#define FIGURE_SIZE 40
/* "18,230" */
char *figure_count(uint64_t count, char text[FIGURE_SIZE]);
/* Three or four digits, as "11.2", "0.00183" or "1.83e-07"; "–": NaN. */
char *figure_number(double value, char text[FIGURE_SIZE]);
/* "12 ms", "0.4 s", "42 min" */
char *figure_duration(uint64_t ms, char text[FIGURE_SIZE]);
/* "7 s", "42 min": page.js does the same while the page is open */
char *figure_age(uint64_t ms, char text[FIGURE_SIZE]);

/* The same for one expression. */
#define COUNT(count) figure_count((count), (char[FIGURE_SIZE]){ 0 })
#define NUMBER(value) figure_number((value), (char[FIGURE_SIZE]){ 0 })
#define DURATION(ms) figure_duration((ms), (char[FIGURE_SIZE]){ 0 })
#define AGE(ms) figure_age((ms), (char[FIGURE_SIZE]){ 0 })

#endif
