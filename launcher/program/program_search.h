/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include "rendezvous/common/base/err.h"

struct command;

/*
 * The path of the file that name means; the caller frees it. NULL with e. A file of
 * PATH and of crun's folder is a program. A file of the working directory, or one whose
 * path was typed, may also be a text that Python runs.
 */
char *program_search(const struct command *c, const char *name, bool python,
                     struct err *e);
/* By its ending: ".py" and the like. */
bool program_is_named_python(const char *name);
