/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Variables that name the place of one process in the layer that has started crun: a
 * task of Slurm, a rank of mpiexec. A worker that believed them would be another rank
 * than crun's. Variables of the node, of the batch job and of the user are not among
 * them.
 */
enum task_variable {
    TASK_VARIABLE_NONE,
    TASK_VARIABLE_DROPPED, /* a worker does not get it */
    /* a worker gets its own number in the place of that of crun */
    TASK_VARIABLE_RANK,
    TASK_VARIABLE_LOCAL_RANK,
    TASK_VARIABLE_WORLD_SIZE,
};

/* Of "NAME=value". keep: NULL-ended lists of names or patterns, separated by commas,
 * that are left as they are; or NULL. */
enum task_variable task_variable_of(const char *entry, const char *const *keep);
