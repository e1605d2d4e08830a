/* SPDX-License-Identifier: MIT */
#ifndef TESTS_FAKES_NET_SLOW_NAMES_H
#define TESTS_FAKES_NET_SLOW_NAMES_H

#include <semaphore.h>

/*
 * A getaddrinfo in place of the system's, for who uses these: nobody knows
 * "unknown.test", and a look-up of "slow.test" waits for slow_may_end.
 */
extern sem_t slow_may_end, slow_has_ended;

#endif
