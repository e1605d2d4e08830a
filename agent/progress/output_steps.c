/* SPDX-License-Identifier: MIT */
#include "agent/progress/output_steps.h"

#include <stdlib.h>
#include <string.h>

#include "agent/progress/step_pattern.h"
#include "rendezvous/common/base/xalloc.h"

#define LINE_KEPT 512

struct output_line {
    char text[LINE_KEPT];
    size_t used;
};

struct output_steps {
    regex_t regex;
    uint32_t workers;
    struct output_worker {
        bool found;
        uint64_t step, first;
        struct output_line line[2]; /* of each stream */
    } worker[];
};

struct output_steps *output_steps_create(uint32_t workers, const char *pattern)
{
    struct output_steps *s;
    struct err e;

    if (!pattern)
        return NULL;
    s = xcalloc(1, sizeof(*s) + workers * sizeof(s->worker[0]));
    s->workers = workers;
    if (step_pattern_compile(&s->regex, pattern, &e) == 0)
        return s;
    free(s);
    return NULL;
}

void output_steps_destroy(struct output_steps *s)
{
    if (!s)
        return;
    regfree(&s->regex);
    free(s);
}

void output_steps_begin(struct output_steps *s)
{
    if (s)
        memset(s->worker, 0, s->workers * sizeof(s->worker[0]));
}

static void end_line(struct output_steps *s, struct output_worker *w,
                     struct output_line *line)
{
    line->text[line->used] = '\0';
    if (line->used > 0 && step_pattern_match(&s->regex, line->text, &w->step))
        w->found = true;
    if (!w->first)
        w->first = w->step;
    line->used = 0;
}

void output_steps_read(struct output_steps *s, uint32_t local_rank, int stream,
                       const char *data, size_t size)
{
    struct output_worker *w = s ? &s->worker[local_rank] : NULL;
    struct output_line *line = w ? &w->line[stream] : NULL;

    for (size_t i = 0; line && i < size; i++) {
        if (data[i] == '\n' || data[i] == '\r')
            end_line(s, w, line);
        else if (line->used < LINE_KEPT - 1)
            line->text[line->used++] = data[i] ? data[i] : ' ';
    }
}

bool output_steps_get(const struct output_steps *s, uint32_t local_rank, uint64_t *step,
                      uint64_t *first)
{
    if (!s || !s->worker[local_rank].found)
        return false;
    *step = s->worker[local_rank].step;
    *first = s->worker[local_rank].first;
    return true;
}
