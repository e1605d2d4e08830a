/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_SHOW_PAGE_PAGE_H
#define RENDEZVOUS_SHOW_PAGE_PAGE_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * What a person sees of jobs in a browser. A job object
 * (rendezvous/show/views/job_json.h) becomes HTML in one document without other files:
 * style and script are inside. Fields of a job object may be missing or of another
 * type. All texts are escaped. The functions read no clock and keep nothing; times are
 * in the zone of this process.
 */
struct page_reader {
    uint64_t now_ms; /* the wall clock */
    /* what crunctl needs to find the rendezvous, such as "-e 10.0.0.1:29500", for the
     * commands to copy; NULL: nothing */
    const char *server;
    bool sees_output; /* of the workers: links to the pages of ranks */
    bool has_list;    /* a link to the list of jobs at "/" */
};

/* The page of a job, which its script keeps up to date from /jobs/ID/live. */
void page_write_job(FILE *out, const cJSON *job, const struct page_reader *reader);

/* The same as a file to keep or to send: no script, no links, absolute times. */
void page_write_report(FILE *out, const cJSON *job, const struct page_reader *reader);

/*
 * The parts of the page of a job, in order: each is one element with that id, of
 * [a-z0-9-]. A part is the same text as long as nothing changed that it shows. There
 * may be more or fewer of them each time, for nodes come and go: the script replaces an
 * element, adds one that is new, and removes one whose new HTML is "".
 */
typedef void page_section_fn(void *arg, const char *id, const char *html, size_t size);
void page_each_section(const cJSON *job, const struct page_reader *reader,
                       page_section_fn *use, void *arg);

/* An array of job objects; their nodes and histories are not needed. */
void page_write_list(FILE *out, const cJSON *jobs, const struct page_reader *reader);

/* The last output and the stacks of a rank. */
struct page_rank {
    uint32_t rank;
    const char *host;            /* NULL: not known */
    const char *output, *stacks; /* NULL: none */
    const char *output_note,
        *stacks_note; /* one line: what it is, or why there is none */
};
void page_write_rank(FILE *out, const cJSON *job, const struct page_rank *rank,
                     const struct page_reader *reader);

/* One line, such as "there is no job \"a\"". */
void page_write_error(FILE *out, unsigned status, const char *text,
                      const struct page_reader *reader);

/* The Content-Security-Policy that these pages need, with the digests of the style and
 * the script. Computed once. */
const char *page_policy(void);

#endif
