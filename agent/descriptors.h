/* SPDX-License-Identifier: MIT */
#ifndef AGENT_DESCRIPTORS_H
#define AGENT_DESCRIPTORS_H

/*
 * How many descriptors this process may have: an agent that hosts a rendezvous and a
 * store needs many, and the guard and its workers are to have the limit that crun was
 * started with.
 */
void descriptors_raise(void);
void descriptors_restore(void); /* as before the first raise */

#endif
