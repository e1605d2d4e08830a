/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_COMMAND_H
#define LAUNCHER_COMMAND_H

#include <stdbool.h>

#include "rendezvous/base/err.h"

/* Turns the words of a command line into the argv of a worker. */
struct command {
    bool module, no_python, run_path; /* as torchrun's flags */
    bool local_rank_argument;         /* --local-rank=N after the program */
    const char *python;               /* PYTHON_EXEC; NULL: python3 of PATH */
    const char *path;                 /* PATH; NULL: not set */
    const char *beside;               /* crun's own folder; NULL: not known */
    const char *before; /* a program that starts the program; NULL: none */
};

/*
 * words: the program and its arguments, NULL-ended. The result is NULL-ended too, in
 * one allocation, with the file to execute as [0] and "${local_rank}" in place of each
 * worker's local rank. Its texts are copies.
 */
const char **command_find(const struct command *c, const char *const *words,
                          struct err *e) MUST_CHECK;

#endif
