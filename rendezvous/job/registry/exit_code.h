/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/wire/protocol/message.h"

/* The exit code of `crun` if this failure ends the job: 1 to 255 in any case. */
int job_exit_code(const struct failure *f);

/* The exit code of the agent: 1 to 255, or 0 for success and for a node that was
 * released, whatever code the rendezvous sends. */
int done_exit_code(const struct msg_done *done);
