/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/base/err.h"

/*
 * The variables that travel from the launcher to the hosts: what finds programs and
 * libraries there, and the settings of Python, CUDA, NCCL, PyTorch and their like. What
 * belongs to this machine or this session does not travel, nor what looks like a
 * secret.
 */

/* Whether text is a value of -x: NAME, NAME=value, or a pattern as in NCCL_*. */
int host_environment_check(const char *text, struct err *e) MUST_CHECK;

/*
 * The variables of environ that travel, as NAME=value, and those that -x names in
 * addition (NULL: none). NAME takes the value that it has here, if it has one, and also
 * a secret; a pattern does not match secrets. The last of equal names wins. NULL ends
 * the list, which the caller frees with host_environment_free.
 */
char **host_environment_carried(const char *const *environ, const char *const *named);

void host_environment_free(char **list);
