/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/limits.h"

#define PMI1_TEXT_MAX 1023 /* of a value, in the implementations in use */

/*
 * The processes of a job that MPICH's mpiexec or Flux has started meet by PMI-1, a
 * protocol of text lines on the descriptor PMI_FD: rank 0 listens on any port and puts
 * its addresses, the others get them. No host list, port or name service is needed.
 */
struct pmi1_meeting {
    int32_t rank;                      /* of this process; the rest is filled in */
    int listener;                      /* rank 0's socket; 0 on the others */
    char endpoints[PMI1_TEXT_MAX + 1]; /* rank 0's: "10.0.0.1:4711,[fd00::1]:4711" */
    char job[RUN_ID_MAX + 1];          /* a name that no other job has */
};

/* Waits for all processes. Workers get none of PMI's variables afterwards. */
int pmi1_meet(struct pmi1_meeting *m, struct err *e) MUST_CHECK;
