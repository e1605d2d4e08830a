/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include "rendezvous/common/base/err.h"

/* What decides about the interpreter; each may be NULL. */
struct python_hints {
    const char *exec; /* PYTHON_EXEC */
    const char *self; /* argv[0] of crun, as it was typed */
    const char *path; /* PATH */
};

/* True if crun was called as torchrun. */
bool python_is_torchrun(const char *self);

/*
 * The path of the interpreter, which the caller frees; NULL with e, which names the
 * program that needs it. PYTHON_EXEC wins. Next is the virtual environment that crun is
 * in, whether or not it is activated; then python3 of PATH. Called as torchrun, crun
 * takes the python3 of its folder, as the Python program of that name does.
 */
char *python_find(const struct python_hints *h, const char *program, struct err *e);

/* A "#!" script, which starts an interpreter. */
bool python_is_script(const char *path);

/* The interpreter that a script in a folder "shims" (pyenv, asdf) starts here; the
 * caller frees it. NULL: it is another script, which may change the environment. */
char *python_behind_shim(const char *script);
