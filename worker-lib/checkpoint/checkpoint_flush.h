/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Writes the parts of a checkpoint in memory that this node has to files, as the ranks
 * that have saved them would have: part for part, each complete or not there. The
 * agents run it at the end of a job, when workers may be dead, and while they train on
 * (memory_flush.c).
 *
 * words: the folder, the generation and the id of its claim, how many checkpoints stay
 * there; NULL. The environment has
 * CRUN_MEMORY_STEP, _EPOCH, _WORLD; the parts in _PARTS, "RANK:PATH[:shared] ...", and
 * in _COPIES those that other nodes write, if they live. Returns an exit code: 0,
 * MEMORY_EXIT_IN_FILES, or one of a failure, which it has printed.
 */
int checkpoint_flush(char *const *words);
