/* SPDX-License-Identifier: MIT */
/* Which settings of a node differ from those of its job, and which are allowed. */
#include "rendezvous/job/registry/job.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/wire/protocol/proto_fields.h"

bool job_has_same_arguments(const struct job_config *ours,
                            const struct job_config *theirs)
{
    return strcmp(ours->arguments_hash, theirs->arguments_hash) == 0;
}

/* A setting as shown to users; buf may hold the text. */
static const char *setting_text(const struct job_config *c, const struct proto_field *f,
                                char *buf, size_t size)
{
    const char *at = (const char *)c + f->offset;
    uint32_t v = 0;

    if (f->kind == PROTO_BOOL)
        return f->setting->words[*at != 0];
    if (f->kind == PROTO_TEXT)
        return *at ? at : "not given";
    memcpy(&v, at, sizeof(v));
    if (f->kind == PROTO_WORD)
        return f->names[v];
    if (f->offset == offsetof(struct job_config, spares) && !c->limit_spares)
        return "not given";
    if (f->setting->is_ms)
        snprintf(buf, size, "%g s", v / 1e3);
    else
        snprintf(buf, size, "%" PRIu32, v);
    return buf;
}

/* "2", or "2:4", as --nnodes has it. Returns buf. */
static char *format_nnodes(const struct job_config *c, char *buf, size_t size)
{
    if (c->min_nodes == c->max_nodes)
        snprintf(buf, size, "%" PRIu32, c->min_nodes);
    else
        snprintf(buf, size, "%" PRIu32 ":%" PRIu32, c->min_nodes, c->max_nodes);
    return buf;
}

/* The name of the program may have been cut: with equal hashes it is not compared. How
 * long the last call is, is up to the first node, as with torchrun. */
static bool setting_is_compared(const struct proto_field *f,
                                const struct job_config *ours,
                                const struct job_config *theirs)
{
    return f->setting && f->offset != offsetof(struct job_config, last_call_ms) &&
           (f->offset != offsetof(struct job_config, program) ||
            !job_has_same_arguments(ours, theirs));
}

const char *job_config_difference(const struct job_config *ours,
                                  const struct job_config *theirs, char *buf,
                                  size_t size)
{
    char nnodes[2][24];

    buf[0] = '\0';
    if (ours->min_nodes != theirs->min_nodes || ours->max_nodes != theirs->max_nodes) {
        snprintf(buf, size, "--nnodes is %s in the job and %s here",
                 format_nnodes(ours, nnodes[0], sizeof(nnodes[0])),
                 format_nnodes(theirs, nnodes[1], sizeof(nnodes[1])));
        return "--nnodes";
    }
    for (unsigned i = 0; i < proto_job_config.count; i++) {
        const struct proto_field *f = &proto_job_config.field[i];
        char number[2][24];
        const char *a, *b;

        if (!setting_is_compared(f, ours, theirs))
            continue;
        a = setting_text(ours, f, number[0], sizeof(number[0]));
        b = setting_text(theirs, f, number[1], sizeof(number[1]));
        if (strcmp(a, b) == 0)
            continue;
        snprintf(buf, size, "%s is %s in the job and %s here", f->setting->name, a, b);
        return f->setting->name;
    }
    return NULL;
}

static bool setting_is_valid(const struct job_config *c, const struct proto_field *f,
                             char *why, size_t size)
{
    const struct proto_setting *s = f->setting;
    uint32_t v = 0;

    if (!s || (f->kind != PROTO_U32 && f->kind != PROTO_WORD))
        return true;
    memcpy(&v, (const char *)c + f->offset, sizeof(v));
    if (f->kind == PROTO_WORD && v > f->max)
        snprintf(why, size, "%s is not one of %s ... %s", s->name, f->names[0],
                 f->names[f->max]);
    else if (f->kind == PROTO_U32 && s->is_ms && (v < s->min || v > s->max))
        snprintf(why, size, "%s is %g s, allowed is %g to %g s", s->name, v / 1e3,
                 (double)s->min / 1e3, (double)s->max / 1e3);
    else if (f->kind == PROTO_U32 && (v < s->min || v > s->max))
        snprintf(why, size, "%s is %" PRIu32 ", allowed is %" PRId64 " to %" PRId64,
                 s->name, v, s->min, s->max);
    else
        return true;
    return false;
}

bool job_config_is_valid(const struct job_config *c, char *why, size_t size)
{
    for (unsigned i = 0; i < proto_job_config.count; i++)
        if (!setting_is_valid(c, &proto_job_config.field[i], why, size))
            return false;
    if (c->min_nodes > c->max_nodes) {
        snprintf(why, size,
                 "%" PRIu32 ":%" PRIu32 " nodes: the minimum is above the maximum",
                 c->min_nodes, c->max_nodes);
        return false;
    }
    return true;
}
