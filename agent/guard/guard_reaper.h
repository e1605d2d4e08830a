/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GUARD_GUARD_REAPER_H
#define AGENT_GUARD_GUARD_REAPER_H

#include <sys/types.h>

/*
 * Where no cgroup holds what workers start, a warden stands between agent and guard: a
 * process that does nothing but wait for the guard. What the guard leaves behind when
 * it is killed comes up to the warden, a subreaper, which kills it and then ends as the
 * guard did. So of agent, guard and warden any one that is left ends everything:
 *
 *     agent    killed: the guard ends the workers, as ever
 *     guard    killed: the warden ends them, also with the agent gone
 *     warden   killed: the guard becomes the agent's child; the agent ends both
 *
 * Then it removes what is empty of the agent's scratch folder, if the agent is gone.
 *
 * It has neither "crun" in its name nor, but for TMPDIR, anything of its environment:
 * who kills all of crun by name does not hit it.
 */
#define GUARD_REAPER_ARGV0 "warden"

/* In the child that is to become one, before it has its own child. */
void guard_reaper_prepare(void);
/* Does not return. */
void guard_reaper_become(pid_t guard, pid_t agent, const char *scratch);

/* Called in main before anything else; does not return if it was executed as one. */
void guard_reaper_main_if_asked(int argc, char **argv);

#endif
