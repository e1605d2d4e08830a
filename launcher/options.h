/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_OPTIONS_H
#define LAUNCHER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "agent/config/config.h"
#include "launcher/rdzv_conf.h"
#include "rendezvous/base/opt.h"

/*
 * crun's command line as it was typed, each flag checked by itself: one table for
 * parsing, --help, defaults from PET_* and CRUN_*, and completions. What the flags mean
 * together is config_build.h's business. Texts point into argv and the environment.
 */
enum options_nproc { NPROC_NUMBER, NPROC_CPU, NPROC_GPU, NPROC_AUTO };
enum options_backend { BACKEND_NOT_GIVEN, BACKEND_STATIC, BACKEND_C10D };
enum options_stdin { STDIN_NOT_GIVEN, STDIN_NONE, STDIN_FIRST, STDIN_ALL };
enum options_shell { SHELL_NONE, SHELL_BASH, SHELL_ZSH };

#define OPTIONS_NOTES_MAX 8

struct options {
    /* nodes and workers */
    uint32_t min_nodes, max_nodes;
    enum options_nproc nproc;
    uint32_t nproc_number;
    long long node_rank; /* -1: not given */
    const char *role;
    bool virtual_local_rank;
    enum config_numa numa;
    bool preflight;

    /* the rendezvous; NULL and -1: not given */
    enum options_backend backend;
    bool standalone;
    const char *endpoint, *run_id, *master_addr, *local_addr;
    long long master_port, store_port;
    struct rdzv_conf conf;

    /* the program */
    bool module, no_python, run_path, launch_compat, use_env;
    enum options_stdin stdin_mode;

    /* what it writes */
    const char *log_dir, *redirects, *tee, *local_ranks_filter;
    const char *stdout_filters, *stderr_filters;
    const char *prefix_template;
    const char *events_file;
    bool events_console;

    /* failures and the end */
    long long max_restarts;
    const char *no_restart_on;
    uint64_t restart_min_uptime_ms, restart_backoff_ms;
    long long spares; /* -1: not given */
    uint64_t shutdown_timeout_ms, failure_grace_ms;
    uint64_t outage_grace_ms; /* 0: not given */
    bool strict_fence;
    uint64_t hang_timeout_ms; /* 0: none */
    bool hang_auto;
    int checkpoint_signal; /* 0: none */
    const char *signals_text;
    int signals[CONFIG_SIGNALS_MAX];

    bool dry_run, verbose, version, help;
    enum options_shell completion;

    /* flags that are taken and do little here: a line on each */
    const char *notes[OPTIONS_NOTES_MAX];
    unsigned note_count;
};

extern const struct opt options_table[];

/* Defaults, then the environment, then argv; *first_word: index of the program. */
int options_parse(int argc, char **argv, struct options *o, int *first_word,
                  struct err *e) MUST_CHECK;

void options_print_help(FILE *out);

/* A script for that shell that completes crun's flags, for `command`. */
void options_print_completion(enum options_shell shell, const char *command, FILE *out);

#endif
