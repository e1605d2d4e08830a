/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "launcher/flags/options.h"

/* A command line as it was typed: what it means on this machine, and its refusal. */
#define EXIT_USAGE 2

/* The CPUs that this process may run on, as torch counts them. */
uint32_t command_line_count_cpus(void);
uint32_t command_line_count_gpus(void);
/* The folder of this program, in buf; or NULL. */
const char *command_line_own_folder(char *buf, size_t size);

/* What the flags mean for the agent. words: the program and its arguments. */
int command_line_build_config(const struct options *o, const char *const *words,
                              struct config *config, struct err *e) MUST_CHECK;
/* What is executed for each worker. */
int command_line_build_argv(const struct options *o, const char *const *words,
                            struct config *config, struct err *e) MUST_CHECK;
/* Fails early if --log-dir cannot be created. */
int command_line_prepare_logs(const struct config *config, struct err *e) MUST_CHECK;

/* The program's name and verbosity in all that it logs. */
void command_line_adopt_log(const struct options *o);
/* Lines about flags and variables that have no effect. */
void command_line_print_notes(const struct options *o);
/* Prints an error about the command line, with its flags as they were typed. Returns
 * the exit code. */
int command_line_refuse(const struct options *o, struct err *e);
