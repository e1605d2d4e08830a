/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_PAGE_SECTIONS_H
#define RENDEZVOUS_PAGE_SECTIONS_H

#include "rendezvous/page/page.h"

/* What all parts of the page of one job are made from. */
struct page_view {
    const cJSON *job, *history; /* history: NULL if it is not known */
    const struct page_reader *reader;
    bool is_report;
    bool has_ages; /* times tell how long ago they are, or were; else the script adds it
                    */
};

/* The state of a job: in one word, with a sign and a class of the style. */
struct page_state {
    const char *word, *sign, *class;
};
struct page_state page_job_state(const cJSON *job);

/* A time of day, and the date if it is another day than today. */
void page_write_time(FILE *out, uint64_t wall_ms, const struct page_view *v);

/* Each writes one element with the id that page.c has for it. */
typedef void page_part_fn(FILE *out, const struct page_view *v);
page_part_fn write_head_section, write_figures_section, write_failure_section,
    write_events_section, write_commands_section;

/* Nodes are many: the parts of them are written one by one. */
size_t node_block_count(const struct page_view *v);
void write_node_block(FILE *out, const struct page_view *v, size_t block);

#endif
