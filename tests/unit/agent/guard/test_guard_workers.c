/* SPDX-License-Identifier: MIT */
/* no root: credentials and limits are the user's */
/*
 * Where the next workers are born. A folder is as good as a cgroup as long as no
 * process is to be born there; the rest of the table is at work in test_guard*.c.
 */
#include "agent/guard/guard_workers.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/tree.h"

static struct cgroup group = CGROUP_NONE;

static void setup(void)
{
    tree_setup();
    group.dir = open(tree_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert(guard_workers_init(epoll_create1(EPOLL_CLOEXEC), &group));
}

static void teardown(void)
{
    tree_teardown();
}

static bool there_is(const char *name)
{
    return faccessat(group.dir, name, F_OK, 0) == 0;
}

FIXTURE(setup, teardown);

TEST(each_kill_is_followed_by_another_group)
{
    guard_workers_renew_cgroup();
    ck_assert(there_is("after-kill-1"));
    guard_workers_renew_cgroup();
    ck_assert(there_is("after-kill-2"));
    ck_assert(!there_is("after-kill-1"));
}

TEST(one_that_cannot_be_made_is_not_the_last)
{
    guard_workers_renew_cgroup();
    ck_assert_int_eq(mkdirat(group.dir, "after-kill-2", 0755), 0);
    guard_workers_renew_cgroup(); /* EEXIST */
    guard_workers_renew_cgroup();
    ck_assert(there_is("after-kill-3"));
}
