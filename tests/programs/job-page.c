/* SPDX-License-Identifier: MIT */
/*
 * The page of a job without a rendezvous: a job object (for `list` an array of them) as
 * `crunctl status --json` prints it comes from stdin, HTML goes to stdout.
 *
 *   job-page job|report|list|rank NOW_MS < JSON > HTML        job-page policy
 */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/show/page/page.h"

static char *read_all(FILE *in)
{
    size_t size = 0, space = 1 << 16, got;
    char *text = xcalloc(1, space);

    while ((got = fread(text + size, 1, space - size - 1, in)) > 0) {
        size += got;
        if (size + 1 == space)
            text = xrealloc(text, space *= 2);
    }
    text[size] = '\0';
    return text;
}

/* With the failure's text as output and stacks. */
static void write_rank(const cJSON *job, const struct page_reader *reader)
{
    const cJSON *text = cJSON_GetObjectItem(job, "text");
    struct page_rank rank = { .rank = 56,
                              .host = "gpu-node-00007",
                              .output = cJSON_GetStringValue(text),
                              .stacks = cJSON_GetStringValue(text),
                              .output_note = "the last 200 lines",
                              .stacks_note = "as of now" };

    page_write_rank(stdout, job, &rank, reader);
}

static int write_page(const char *what, const cJSON *o, uint64_t now_ms)
{
    struct page_reader reader = { .now_ms = now_ms,
                                  .server = "-e 127.0.0.1:29500",
                                  .sees_output = true,
                                  .has_list = true };

    if (strcmp(what, "job") == 0)
        page_write_job(stdout, o, &reader);
    else if (strcmp(what, "report") == 0)
        page_write_report(stdout, o, &reader);
    else if (strcmp(what, "list") == 0)
        page_write_list(stdout, o, &reader);
    else if (strcmp(what, "rank") == 0)
        write_rank(o, &reader);
    else
        return 2;
    return 0;
}

int main(int argc, char **argv)
{
    char *text;
    cJSON *o;
    int rc;

    if (argc == 2 && strcmp(argv[1], "policy") == 0)
        return puts(page_policy()) < 0;
    if (argc != 3) {
        fprintf(stderr, "usage: job-page job|report|list|rank NOW_MS < JSON\n");
        return 2;
    }
    text = read_all(stdin);
    o = cJSON_Parse(text);
    free(text);
    if (!o) {
        fprintf(stderr, "job-page: not JSON\n");
        return 2;
    }
    rc = write_page(argv[1], o, strtoull(argv[2], NULL, 10));
    cJSON_Delete(o);
    return rc;
}
