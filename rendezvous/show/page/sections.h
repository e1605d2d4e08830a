/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_SHOW_PAGE_SECTIONS_H
#define RENDEZVOUS_SHOW_PAGE_SECTIONS_H

#include "rendezvous/show/page/nodes.h"
#include "rendezvous/show/page/page.h"

/* What all parts of the page of one job are made from. */
struct page_view {
    const cJSON *job, *history; /* history: NULL if it is not known */
    const struct page_reader *reader;
    struct node_list nodes;
    bool is_report;
    bool has_ages; /* times say how long ago they are; else the script adds it */
};

/* The state of a job: in one word, with a sign and a class of the style. */
struct page_state {
    const char *word, *sign, *class;
};
struct page_state page_job_state(const cJSON *job);
bool page_job_is_over(const cJSON *job);

/* The least rate of the nodes that take part, or the newest one of the curve; NaN. */
double page_job_rate(const struct page_view *v);
/* Of the node with rank 0, or of any node, or the newest one of the curve; NaN. */
double page_job_loss(const struct page_view *v);

/* The time of day, with the date if it is of another day; "–" for 0. In whole seconds,
 * so that a part stays the same when a time is told a moment later. */
void page_write_time(FILE *out, uint64_t wall_ms, const struct page_view *v);
/* And how long ago that is. */
void page_write_aged_time(FILE *out, uint64_t wall_ms, const struct page_view *v);

/* "/jobs/ID/ranks/N"; the reader must see output. */
void page_write_rank_link(FILE *out, uint64_t rank, const struct page_view *v);
bool page_has_rank_links(const struct page_view *v);

/* Each part is one element; page.c has the ids. */
typedef void page_part_fn(FILE *out, const struct page_view *v);
page_part_fn write_head_section, write_figures_section, write_failure_section,
    write_curves_section, write_time_section, write_epochs_section, write_nodes_section,
    write_events_section, write_commands_section;

/* Nodes are many: they are shown in blocks, so that a few of them change alone. */
size_t node_block_count(const struct page_view *v);
void write_node_block(FILE *out, const struct page_view *v, size_t block);

#endif
