/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/config.h"
#include "launcher/flags/options.h"
#include "launcher/program/command.h"

/*
 * Sets config->bootstrap if the program is run by Python, and bootstrap_follows if a
 * flag asks for that: --warm, --watch and --hang-timeout do. One line says why a flag
 * has no effect. For --warm, the interpreter takes the place of a shim of pyenv's.
 */
void bootstrap_find(const struct options *o, struct program *program,
                    const char *own_folder, struct config *config);

/* A folder of Python's that was installed with crun, which the caller frees; or NULL.
 */
char *bootstrap_installed(const char *own_folder, const char *name);
