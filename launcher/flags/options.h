/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "agent/config.h"
#include "launcher/flags/rdzv_conf.h"
#include "launcher/hosts/hosts.h"
#include "rendezvous/common/base/opt.h"

/*
 * crun's command line as it was typed, each flag checked by itself: one table for
 * parsing, --help, and defaults from PET_* and CRUN_*. A flag that depends
 * on no other is stored in `config`; the others are combined by config_build.h. Texts
 * point into argv and the environment.
 */
enum options_nproc { NPROC_NUMBER, NPROC_CPU, NPROC_GPU, NPROC_AUTO };
enum options_backend { BACKEND_NOT_GIVEN, BACKEND_STATIC, BACKEND_C10D };
enum options_stdin { STDIN_NOT_GIVEN, STDIN_NONE, STDIN_FIRST, STDIN_ALL };

#define OPTIONS_NOTES_MAX 8

struct options {
    struct config config;
    const char *self; /* argv[0] */
    char **argv;      /* with the flags first */
    int flag_words;   /* of argv, argv[0] too; 0: not known yet */

    /* nodes and workers */
    enum options_nproc nproc;
    uint32_t nproc_number;
    bool nproc_given;
    bool nnodes_given, nnodes_auto; /* a number, or the word */
    uint32_t processes;             /* -np, of all nodes; 0: not given */

    /* the hosts that crun starts, and what they get */
    struct hosts_wanted hosts;
    struct opt_texts exports; /* -x */
    const char *folder;       /* --wdir; NULL: the working directory */
    const char *rsh, *ssh_args;
    bool host_prefix, detach;

    /* the rendezvous; NULL and -1: not given */
    enum options_backend backend;
    bool standalone;
    const char *endpoint, *run_id, *master_addr;
    long long master_port;
    struct rdzv_conf conf;

    /* the program */
    bool module, no_python, run_path, launch_compat, use_env;
    bool watch;
    struct opt_texts keep_env;
    enum options_stdin stdin_mode;

    /* output */
    const char *redirects, *tee, *local_ranks_filter;
    const char *stdout_filters, *stderr_filters;

    int64_t time_limit_s; /* -1: not given; 0: none */

    bool dry_run, version, help, short_help;

    /* one line for each flag that is accepted and has no effect */
    const char *notes[OPTIONS_NOTES_MAX];
    unsigned note_count;
};

extern const struct opt options_table[];

/* Defaults, then the environment, then argv; *first_word: index of the program. */
int options_parse(int argc, char **argv, struct options *o, int *first_word,
                  struct err *e) MUST_CHECK;

/* Without the flags that the launcher has carried out for this host. */
void options_forget_hosts(struct options *o);

void options_print_help(FILE *out);
/* About as many lines as a terminal shows at a glance. */
void options_print_short_help(FILE *out);
