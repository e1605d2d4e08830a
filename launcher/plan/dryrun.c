/* SPDX-License-Identifier: MIT */
#include "launcher/plan/dryrun.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "agent/deadline.h"
#include "agent/workers/macros.h"
#include "agent/workers/task_variables.h"
#include "agent/workers/worker_env.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/text.h"

/* In place of an address that this node does not know. */
#define UNKNOWN_HOST "RANK-0-HOST"

static const char *describe_rendezvous(const struct config *c)
{
    switch (c->rendezvous) {
    case CONFIG_LOCAL:
        return "in this process";
    case CONFIG_STATIC:
        return c->is_host == 1 || (c->is_host < 0 && c->node_rank == 0) ? "here, static"
                                                                        : "static";
    default:
        return c->is_host == 1 ? "here, dynamic" : "dynamic";
    }
}

/* The first epoch, from what one node knows. */
static void imagine_start(const struct config *c, struct msg_start *s)
{
    char host[HOST_NAME_MAX_BYTES + 1] = UNKNOWN_HOST;
    uint16_t port = c->store_port;
    struct err e;

    if (c->rendezvous == CONFIG_LOCAL)
        snprintf(host, sizeof(host), "%s", c->local_addr ? c->local_addr : "127.0.0.1");
    else if (c->rendezvous == CONFIG_STATIC)
        (void)!net_split(c->endpoints, 0, host, sizeof(host), &port, &e);
    memset(s, 0, sizeof(*s));
    s->group_rank = c->node_rank > 0 ? (uint32_t)c->node_rank : 0;
    s->group_size = c->job.max_nodes;
    s->workers = c->workers;
    s->first_rank = s->group_rank * c->workers;
    s->world_size = s->group_size * c->workers;
    s->max_restarts = c->job.max_restarts;
    s->port = port;
    snprintf(s->address, sizeof(s->address), "%s", host);
}

static void print_quoted(const char *text, FILE *out)
{
    if (*text && text[strspn(text, "abcdefghijklmnopqrstuvwxyz"
                                   "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789_-./:,@%+=")] == '\0') {
        fputs(text, out);
        return;
    }
    fputc('\'', out);
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", out);
        else
            fputc(*text, out);
    fputc('\'', out);
}

static bool is_in(const char *entry, const char *const *base)
{
    for (; *base; base++)
        if (strcmp(*base, entry) == 0)
            return true;
    return false;
}

/* The variables of crun's own task that a worker does not get. */
static void print_dropped(const struct config *c, const char *const *base, FILE *out)
{
    bool is_first = true;

    for (; *base; base++) {
        if (task_variable_of(*base, c->keep_env) != TASK_VARIABLE_DROPPED)
            continue;
        fprintf(out, "%s -u %.*s", is_first ? "  env" : "", (int)strcspn(*base, "="),
                *base);
        is_first = false;
    }
    if (!is_first)
        fputs(" \\\n", out);
}

static void print_worker(const struct worker_env_inputs *f, const char *const *base,
                         FILE *out)
{
    const char **env = worker_env_build(f, base);
    const char **argv = macros_replace(f->config, f->start, f->local_rank);

    fprintf(out, "\n# rank %" PRIu32 ", local rank %" PRIu32 "\n",
            f->start->first_rank + f->local_rank, f->local_rank);
    print_dropped(f->config, base, out);
    for (const char **v = env; *v; v++) {
        size_t name = strcspn(*v, "=") + 1;

        if (is_in(*v, base))
            continue;
        fprintf(out, "  %.*s", (int)name, *v);
        if ((*v)[name])
            print_quoted(*v + name, out);
        fputs(" \\\n", out);
    }
    fputs("  ", out);
    for (const char **a = argv; *a; a++) {
        if (a > argv)
            fputc(' ', out);
        print_quoted(*a, out);
    }
    fputc('\n', out);
    free(env);
    free(argv);
}

void dryrun_print(const struct config *c, const char *const *base, FILE *out)
{
    struct msg_start start;
    char plan[192];
    struct worker_env_inputs facts = { .config = c,
                                       .start = &start,
                                       .epoch = 1,
                                       .error_file = "",
                                       .progress = "",
                                       .agent_store = true };

    imagine_start(c, &start);
    fprintf(out, "# job %s: %" PRIu32 " node%s, %" PRIu32 " worker%s on this one\n",
            c->run_id, c->job.max_nodes, text_plural(c->job.max_nodes), c->workers,
            text_plural(c->workers));
    fprintf(out, "# rendezvous: %s%s%s\n", describe_rendezvous(c),
            c->endpoints ? ", " : "", c->endpoints ? c->endpoints : "");
    if (c->deadline_s)
        fprintf(out, "# %s\n", deadline_plan(c, plan, sizeof(plan)));
    if (start.port == 0)
        fputs("# MASTER_PORT 0: any free port, chosen at the start\n", out);
    fputs(
        "# known at the start only: CRUN_PROGRESS=/proc/PID/fd/N (the worker's status "
        "page),\n# CRUN_MEMORY=@NAME (its checkpoints in memory), CRUN_INSTANCE=ID, "
        "CRUN_LAUNCH=TAG, and the "
        "file of TORCHELASTIC_ERROR_FILE\n",
        out);
    if (c->warm_modules)
        fprintf(out, "# workers are forked from a template, which imports %s\n",
                *c->warm_modules ? c->warm_modules
                                 : "what the last run imported, or torch");
    for (uint32_t i = 0; i < c->workers; i++) {
        facts.local_rank = i;
        print_worker(&facts, base, out);
    }
}
