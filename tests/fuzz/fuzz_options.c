/* SPDX-License-Identifier: MIT */
/*
 * A command line of crun, a word for each line of the input: it is refused in one line
 * that is not empty, or understood within what the agent relies on. The environment
 * has no say, and no file is looked for.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/plan/config_build.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/limits.h"

#define WORDS_MAX 64

static void check_options(bool holds)
{
    if (!holds)
        abort();
}

static uint32_t eight(void)
{
    return 8;
}

static void check_refusal(const struct err *e)
{
    check_options(memchr(e->text, '\0', sizeof(e->text)) != NULL);
    check_options(*e->text != '\0');
}

static void check_config(const struct config *c)
{
    check_options(c->job.min_nodes >= 1 && c->job.min_nodes <= c->job.max_nodes);
    check_options(c->job.max_nodes <= NODES_MAX && c->job.max_restarts <= RESTARTS_MAX);
    check_options(c->job.lease_ms >= LEASE_MS_MIN && c->job.lease_ms <= LEASE_MS_MAX);
    check_options(c->job.join_timeout_ms > 0 && c->outage_grace_ms > 0);
    check_options(c->workers >= 1 && c->workers <= WORKERS_PER_NODE_MAX);
    check_options(c->node_rank < (int32_t)NODES_MAX);
    check_options((c->rendezvous == CONFIG_LOCAL) == (c->endpoints == NULL));
    check_options(*c->run_id && strlen(c->run_id) <= RUN_ID_MAX);
    check_options(c->signals[0] && c->signals[CONFIG_SIGNALS_MAX - 1] == 0);
    for (uint32_t i = 0; i < c->workers; i++) {
        check_options(c->streams.redirect[i] <= 3 && c->streams.tee[i] <= 3);
        check_options((c->streams.redirect[i] & c->streams.tee[i]) == 0);
    }
    for (const char *const *f = c->stdout_filters; *f; f++)
        check_options(**f);
}

static void try(int argc, char **argv)
{
    struct machine machine = { .cpus = eight, .gpus = eight };
    struct options o;
    struct config c;
    struct err e;
    int word;

    memset(&e, 0, sizeof(e));
    if (options_parse(argc, argv, &o, &word, &e) < 0) {
        check_refusal(&e);
        return;
    }
    check_options(word >= 1 && word <= argc);
    if (word == argc)
        return;
    memset(&c, 0, sizeof(c));
    if (config_build(&o, (const char *const *)argv + word, &machine, &c, &e) < 0)
        check_refusal(&e);
    else
        check_config(&c);
    config_build_release(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = xcalloc(size + 1, 1), *rest = text, *argv[WORDS_MAX + 1] = { "crun" };
    int argc = 1;

    memcpy(text, data, size);
    while (argc < WORDS_MAX && rest)
        argv[argc++] = strsep(&rest, "\n");
    try(argc, argv);
    free(text);
    return 0;
}
