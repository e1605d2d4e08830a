/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/base/opt.h"

/*
 * Command lines of other programs that users type for crun: flags of mpirun, srun,
 * Lightning and others, and commands of crunctl.
 */
extern const struct opt_hint habits_flags[]; /* ended by .typed == NULL */

/* What a word means that was given as the program, and is no file. NULL: not known. */
const char *habits_explain_word(const char *word);
