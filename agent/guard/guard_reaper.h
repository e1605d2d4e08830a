/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GUARD_GUARD_REAPER_H
#define AGENT_GUARD_GUARD_REAPER_H

#include <sys/types.h>

/*
 * Where no cgroup contains the workers, a reaper stands between agent and guard: a
 * process that only waits for the guard. What a killed guard leaves behind is adopted
 * by the reaper, a subreaper, which kills it and then ends as the guard did. So any one
 * of agent, guard and reaper that is left ends everything:
 *
 *     agent    killed: the guard ends the workers, as always
 *     guard    killed: the reaper ends them, also without an agent
 *     reaper   killed: the guard becomes the agent's child; the agent ends both
 *
 * Then it removes the empty folders of the agent's run_tmpdir, if the agent is gone.
 *
 * Its name does not contain "crun" and its environment is only TMPDIR, so a person who
 * kills all of crun by name does not kill it.
 */
#define GUARD_REAPER_ARGV0 "warden"

/* Called in the child that becomes the reaper, before it forks. */
void guard_reaper_prepare(void);
/* Does not return. */
void guard_reaper_become(pid_t guard, pid_t agent, const char *tmpdir_tag);

/* Called in main before anything else; does not return in a process that was executed
 * as a reaper. */
void guard_reaper_main_if_asked(int argc, char **argv);

#endif
