/* SPDX-License-Identifier: MIT */
/*
 * crun: launches a training job and keeps it alive. The same program is also each
 * helper process of a job: a table of entry points, and then the command line.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/devices/gpu_probe.h"
#include "agent/guard/guard_main.h"
#include "agent/guard/orphan_reaper.h"
#include "launcher/as_torchrun.h"
#include "launcher/command_line.h"
#include "launcher/far_node.h"
#include "launcher/flags/options.h"
#include "launcher/job_here.h"
#include "launcher/job_on_hosts.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/wire/protocol/own_build.h"

/* Each returns unless argv asks for it to run. */
static void (*const entry_points[])(int argc, char **argv) = {
    guard_main_keep_arguments, orphan_reaper_main_if_asked, gpu_probe_main_if_asked,
    far_node_main_if_asked,    far_socket_main_if_asked,    as_torchrun_main_if_asked,
};

/* Answers --help and --version. False: none was given. */
static bool answer_question(const struct options *o)
{
    if (o->help)
        options_print_help(stdout);
    else if (o->short_help)
        options_print_short_help(stdout);
    else if (o->version)
        own_build_print(log_program(), strcmp(log_program(), "crun") == 0
                                           ? "launcher of training jobs"
                                           : "crun, launcher of training jobs");
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    const char *const *words;
    struct options o;
    struct err e;
    int word, code;

    for (size_t i = 0; i < sizeof(entry_points) / sizeof(*entry_points); i++)
        entry_points[i](argc, argv);
    fd_keep_std();
    log_init(log_name_of(argv[0], "crun"), LOG_INFO, LOG_TEXT);
    if (options_parse(argc, argv, &o, &word, &e) < 0) {
        log_error("%s", e.text);
        return EXIT_USAGE;
    }
    if (answer_question(&o))
        return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
    command_line_adopt_log(&o);
    words = (const char *const *)argv + word;
    code = hosts_are_wanted(&o.hosts) ? job_on_hosts_run(&o, argv, words)
                                      : job_here_run(&o, argv, words);
    if (code == 128 + SIGINT)
        loop_die_of_signal(SIGINT);
    return code;
}
