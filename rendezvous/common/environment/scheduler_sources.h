/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/environment/scheduler_row.h"

/* What the rows of the table do beyond their columns. */

/* -- scheduler_port.c -------------------------------------------------------------- */

void scheduler_choose_port(struct scheduler_reading *r);
uint16_t slurm_choose_port(const struct scheduler_env *env);

/* -- slurm.c ----------------------------------------------------------------------- */

bool slurm_runs_step(const struct scheduler_env *env);
int slurm_read_step(struct scheduler_reading *r) MUST_CHECK;
int slurm_read_shell(struct scheduler_reading *r) MUST_CHECK;

/* Variables that came along to another machine, or from the shell that called sbatch,
 * are not this process's. A row that is not Slurm's is never stale. */
bool slurm_row_is_stale(const struct scheduler_env *env,
                        const struct scheduler_row *row);
void slurm_warn_of_stale(const struct scheduler_env *env,
                         const struct scheduler_row *row, char *warning, size_t size);
/* Stale variables of a step of several nodes are an error, unless slurmd's name of this
 * host shows that they are not its own. */
int slurm_refuse_unknown_node(const struct scheduler_env *env,
                              struct err *e) MUST_CHECK;

/* -- clouds.c ---------------------------------------------------------------------- */

int indexed_job_read(struct scheduler_reading *r) MUST_CHECK;
int kubeflow_jax_read(struct scheduler_reading *r) MUST_CHECK;
int sagemaker_read(struct scheduler_reading *r) MUST_CHECK;
int volcano_read(struct scheduler_reading *r) MUST_CHECK;

/* -- batch_systems.c --------------------------------------------------------------- */

int flux_read(struct scheduler_reading *r) MUST_CHECK;
int pmi_read(struct scheduler_reading *r) MUST_CHECK;
int pals_read(struct scheduler_reading *r) MUST_CHECK;
int open_mpi_read(struct scheduler_reading *r) MUST_CHECK;
int pbs_read(struct scheduler_reading *r) MUST_CHECK;
int lsf_read(struct scheduler_reading *r) MUST_CHECK;
