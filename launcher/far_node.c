/* SPDX-License-Identifier: MIT */
#include "launcher/far_node.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "launcher/command_line.h"
#include "launcher/plan/config_build.h"
#include "launcher/remote/channel.h"
#include "launcher/remote/far_reach.h"
#include "launcher/remote/far_side.h"
#include "launcher/remote/remote_order.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/xalloc.h"

#define FAR_LAST_CALL_MS 3000 /* for nodes that start at the same time */

/* The node that a far side runs: options point into the order. */
struct far_node {
    struct options options;
    struct config config;
    char end_file[PATH_MAX + 8];
};

static int prepare_far_node(void *arg, const struct remote_order *order,
                            uint32_t *grace_ms, struct err *e)
{
    struct far_node *n = arg;
    struct options *o = &n->options;
    int argc = 0, word;

    while (order->argv[argc])
        argc++;
    if (options_parse(argc, order->argv, o, &word, e) < 0)
        return -1;
    command_line_adopt_log(o);
    options_forget_hosts(o);
    if (order->workers) {
        o->nproc = NPROC_NUMBER;
        o->nproc_number = order->workers;
    }
    if (command_line_build_config(o, (const char *const *)order->argv + word,
                                  &n->config, e) < 0)
        return -1;
    if (command_line_build_argv(o, (const char *const *)order->argv + word, &n->config,
                                e) < 0)
        return err_set_code(e, REMOTE_NO_PROGRAM, 0);
    if (command_line_prepare_logs(&n->config, e) < 0)
        return err_wrap(e, "--log-dir");
    *grace_ms = n->config.job.shutdown_grace_ms;
    return 0;
}

/* Standard input reaches node rank 0 only. */
static void place_far_node(struct config *c, const struct rdzv_conf *conf,
                           const struct remote_order *order,
                           const struct remote_start *s, int listener, int witness)
{
    snprintf(c->run_id, sizeof(c->run_id), "%s", order->run_id);
    c->job.min_nodes = s->min_nodes;
    c->job.max_nodes = s->max_nodes;
    /* the launcher has seen all nodes that there are */
    if (s->nodes < s->max_nodes && !conf->last_call_given)
        c->job.last_call_ms = FAR_LAST_CALL_MS;
    c->node_rank = s->node_rank;
    c->rendezvous = *s->endpoints ? CONFIG_STATIC : CONFIG_LOCAL;
    free((void *)c->endpoints);
    c->endpoints = *s->endpoints ? xstrdup(s->endpoints) : NULL;
    c->rendezvous_fd = listener;
    c->witness_fd = witness;
    if (witness && !c->witness && !c->alone)
        c->witness = WITNESS_LAUNCHER;
    c->key_text = *s->endpoints ? order->key : NULL;
    c->live_output = order->live;
    c->ignore_closed_output = true; /* the launcher decides */
    c->shares_output = !order->detach && s->max_nodes > 1;
    if (s->node_rank != 0)
        c->stdin_mode = CONFIG_STDIN_NONE;
}

static int run_far_node(void *arg, const struct remote_order *order,
                        const struct remote_start *s, int listener, int witness)
{
    struct far_node *n = arg;
    bool given = n->options.stdin_mode != STDIN_NOT_GIVEN;
    int code;

    if (s->node_rank == 0)
        command_line_print_notes(&n->options);
    if (!given)
        n->config.stdin_mode = CONFIG_STDIN_FIRST;
    place_far_node(&n->config, &n->options.conf, order, s, listener, witness);
    if (order->detach && far_side_end_file("/proc/self/fd/1", n->end_file)) {
        unlink(n->end_file); /* of an earlier job with this name and pid */
        n->config.end_file = n->end_file;
    }
    code = agent_run(&n->config);
    config_build_release(&n->config);
    return code;
}

void far_node_main_if_asked(int argc, char **argv)
{
    static struct far_node node; /* options are large */
    const struct far_side_calls calls = { .prepare = prepare_far_node,
                                          .run = run_far_node,
                                          .arg = &node };

    if (argc != 2 || strcmp(argv[1], "--agent-stdin") != 0)
        return;
    fd_keep_std();
    exit(far_side_run(&calls));
}

void far_socket_main_if_asked(int argc, char **argv)
{
    if (argc != 2 || strcmp(argv[1], CHANNEL_SOCKET_FLAG) != 0)
        return;
    fd_keep_std();
    exit(far_socket_run());
}
