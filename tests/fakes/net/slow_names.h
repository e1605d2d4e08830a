/* SPDX-License-Identifier: MIT */
#pragma once

#include <semaphore.h>

/*
 * A getaddrinfo in place of the system's, in programs that use these: "unknown.test" is
 * not known, a look-up of "slow.test" waits for slow_may_end, and "two.test" has the
 * addresses 127.0.0.2 and 127.0.0.1.
 *
 * Rules of the real one, from getaddrinfo(3) and resolv.conf(5): a name that the
 * servers do not know is EAI_NONAME at once, servers that do not answer are EAI_AGAIN
 * after timeouts of seconds, and a look-up that has begun cannot be cancelled. Other
 * names are looked up for real.
 */
extern sem_t slow_may_end, slow_has_ended;
