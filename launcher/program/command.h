/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include "launcher/program/interpreter.h"
#include "rendezvous/common/base/err.h"

/* How the words of a command line become the argv of a worker. */
struct command {
    bool module, no_python, run_path; /* as torchrun's flags */
    bool local_rank_argument;         /* --local-rank=N after the program */
    struct python_hints hints;
    const char *beside; /* crun's own folder; NULL: not known */
    const char *before; /* a program that starts the program; NULL: none */
};

enum program_kind {
    PROGRAM_EXECUTED,
    PROGRAM_PYTHON_FILE,
    PROGRAM_PYTHON_MODULE,
    PROGRAM_PYTHON_RUN_PATH, /* a file, by runpy.run_path */
};

/* The program that the words name, as it was found. */
struct program {
    enum program_kind kind;
    char *python;                 /* the interpreter; NULL with PROGRAM_EXECUTED */
    char *name;                   /* the file, or the module's name */
    bool is_guessed;              /* neither its name nor a flag says Python */
    const char *const *arguments; /* the words after it, NULL-ended, not copied */
};

/* Codes of errors, which a shell exits with, too. */
enum command_error {
    COMMAND_BAD_INTERPRETER = 126, /* the script has Windows line ends */
    COMMAND_NO_INTERPRETER = 127,  /* that the script asks for */
};

/* words: the program and its arguments, NULL-ended. If it fails, p is empty. */
int command_find_program(const struct command *c, const char *const *words,
                         struct program *p, struct err *e) MUST_CHECK;
void program_release(struct program *p);

/*
 * The command that a worker executes, NULL-ended, in one allocation: the file to
 * execute is [0], and "${local_rank}" stands for each worker's local rank. Its texts
 * are copies.
 */
const char **command_argv(const struct command *c, const struct program *p);
