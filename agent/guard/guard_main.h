/* SPDX-License-Identifier: MIT */
#pragma once

/* Called in main before anything else: the guard, a fork of this process, does not keep
 * its arguments, by which a user may kill it (pkill -f). */
void guard_main_keep_arguments(int argc, char **argv);

/* The guard, with all signals blocked and its descriptors in place. tmpdir_tag stays in
 * use. */
_Noreturn void guard_main(const char *cgroup_name, const char *tmpdir_tag);
