/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "launcher/program/command.h"

/*
 * Whether a program uses MPI for certain: it is linked with it, or is a Python file
 * that imports mpi4py first thing. file gets the file, and how "is linked with MPI
 * (libmpi.so.40)". False for what is only used by a module, or loaded later.
 */
bool mpi_use_find(const struct program *p, const char **file, char *how, size_t size);
