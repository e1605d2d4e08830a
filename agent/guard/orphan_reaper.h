/* SPDX-License-Identifier: MIT */
#pragma once

#include <sys/types.h>

/*
 * If no cgroup contains the workers, there is a reaper between agent and guard: a
 * process that only waits for the guard. The reaper is a subreaper: it adopts the
 * processes of a killed guard, kills them, and then ends as the guard did. So any
 * survivor of agent, guard and reaper ends everything:
 *
 *     agent    killed: the guard ends the workers, as always
 *     guard    killed: the reaper ends them, also without an agent
 *     reaper   killed: the guard becomes the agent's child; the agent ends both
 *
 * Then it removes the empty folders of the agent's run_tmpdir, if the agent has ended.
 *
 * Its name does not contain "crun" and its environment is only TMPDIR, so that killing
 * crun's processes by name does not kill it.
 */
#define ORPHAN_REAPER_ARGV0 "warden"

/* Called in the child that becomes the reaper, before it forks. */
void orphan_reaper_prepare(void);
/* Does not return. */
_Noreturn void orphan_reaper_become(pid_t guard, pid_t agent, const char *tmpdir_tag);

/* Called in main before anything else; does not return in a process that was executed
 * as a reaper. */
void orphan_reaper_main_if_asked(int argc, char **argv);
