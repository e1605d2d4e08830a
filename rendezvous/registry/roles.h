/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_REGISTRY_ROLES_H
#define RENDEZVOUS_REGISTRY_ROLES_H

struct job;

/*
 * A node's workers have its role, whose ranks are counted among the members of that
 * role alone, in the order of their ranks. Into job->node[]: those of the current
 * epoch's members.
 */
void roles_count(struct job *j);

#endif
