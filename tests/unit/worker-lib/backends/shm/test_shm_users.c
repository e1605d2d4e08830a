/* SPDX-License-Identifier: MIT */
/* takes: 10 s */
/* Worlds in shared memory, whose ranks are threads of this process. */
#include "worker-lib/crun/worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/collectives.h"
#include "tests/worlds/ranks.h"

/* Which processes get the ranks' shared memory: those of the same user only. */

/* -- processes of other users ------------------------------------------------------ */

#define OTHER_USER 65534
#define LISTENING "00010000" /* as /proc/net/unix writes it */

/* The first descriptor of this process whose link begins so; its number, or -1. */
static int find_descriptor(const char *begin, char *link, size_t size)
{
    DIR *dir = opendir("/proc/self/fd");
    const struct dirent *entry;
    int found = -1;

    ck_assert_ptr_nonnull(dir);
    while (found < 0 && (entry = readdir(dir)) != NULL) {
        ssize_t length = readlinkat(dirfd(dir), entry->d_name, link, size - 1);

        if (length <= 0)
            continue;
        link[length] = '\0';
        if (strncmp(link, begin, strlen(begin)) == 0)
            found = atoi(entry->d_name);
    }
    closedir(dir);
    return found;
}

static bool is_own_socket(const char *inode)
{
    char socket[64], link[300];

    snprintf(socket, sizeof(socket), "socket:[%s]", inode);
    return find_descriptor(socket, link, sizeof(link)) >= 0;
}

/* The abstract name of this process's socket, as every user of the machine sees it. */
static bool find_name(struct sockaddr_un *name, socklen_t *length)
{
    FILE *f = fopen("/proc/net/unix", "re");
    char line[300], flags[16], inode[32], path[100];
    bool found = false;

    ck_assert_ptr_nonnull(f);
    while (!found && fgets(line, sizeof(line), f))
        found = sscanf(line, "%*s %*s %*s %15s %*s %*s %31s @%99s", flags, inode,
                       path) == 3 &&
                strcmp(flags, LISTENING) == 0 && strncmp(path, "crun-", 5) == 0 &&
                is_own_socket(inode);
    fclose(f);
    if (!found)
        return false;
    *name = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(name->sun_path + 1, path, strlen(path));
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(path));
    return true;
}

/* What a process of that user gets that connects: 1: a descriptor, 0: the end. */
static int ask_as(uid_t user, const struct sockaddr_un *name, socklen_t length)
{
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec iov = { &byte, 1 };
    struct msghdr m = { .msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = control,
                        .msg_controllen = sizeof(control) };
    struct timeval patience = { .tv_sec = 30 };
    int status, fd;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        if (setresuid(user, user, user) < 0 ||
            connect(fd, (const struct sockaddr *)name, length) < 0)
            _exit(2);
        if (recvmsg(fd, &m, 0) < 0 && errno != ECONNRESET)
            _exit(3);
        _exit(m.msg_controllen > 0 && CMSG_FIRSTHDR(&m) ? 1 : 0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The file has its size when the socket is there. */
static void try_as_stranger(void)
{
    struct sockaddr_un name;
    socklen_t length;
    char link[300];
    int fd;

    while (!find_name(&name, &length))
        usleep(1000);
    if (geteuid() == 0)
        ck_assert_int_eq(ask_as(OTHER_USER, &name, length), 0);
    ck_assert_int_eq(ask_as(geteuid(), &name, length), 1);
    fd = find_descriptor("/memfd:crun-worker", link, sizeof(link));
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, 0), -1);
    ck_assert_int_eq(errno, EPERM);
}

static crun_status open_after_a_stranger(struct backend **b, const struct team *team,
                                         uint64_t deadline_ms, struct err *e)
{
    if (team->rank == 1)
        try_as_stranger();
    return backend_shm.open(b, team, deadline_ms, e);
}

/* As a rank 1 of another user, in a process of its own, before the right one. */
struct other_open {
    struct backend *b;
    const struct team *team;
    uint64_t deadline_ms;
    crun_status status;
    struct err e;
};

/* The system call, unlike its wrapper, is of this thread alone. A process made by fork
 * would wait for ever for a lock of the allocator that another thread had. */
static void *open_as_other_user(void *arg)
{
    struct other_open *o = arg;

    if (syscall(SYS_setresuid, OTHER_USER, OTHER_USER, OTHER_USER) == 0)
        o->status = backend_shm.open(&o->b, o->team, o->deadline_ms, &o->e);
    return NULL;
}

static crun_status open_after_another_user(struct backend **b, const struct team *team,
                                           uint64_t deadline_ms, struct err *e)
{
    static const char words[] = "is offered by user 0, and this rank is of user 65534";
    struct other_open other = { .team = team, .deadline_ms = deadline_ms };
    pthread_t thread;

    if (team->rank == 1) {
        ck_assert_int_eq(pthread_create(&thread, NULL, open_as_other_user, &other), 0);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        ck_assert_msg(other.status == CRUN_SYSTEM && strstr(other.e.text, words) &&
                          !strchr(other.e.text, '\n'),
                      "%s: \"%s\"", crun_status_name(other.status), other.e.text);
    }
    return backend_shm.open(b, team, deadline_ms, e);
}

/* Rank 0 offers a file of another user, as a forged notice in the store would. */
static crun_status open_anothers_file(struct backend **b, const struct team *team,
                                      uint64_t deadline_ms, struct err *e)
{
    if (team->rank == 0)
        setfsuid(OTHER_USER);
    return backend_shm.open(b, team, deadline_ms, e);
}

static void sum_once(struct team_member *m)
{
    struct collectives c = { .seed = 1, .rounds = 5, .bytes_max = 10000 };

    collectives_check(m, &c);
}

static void expect_refusal(struct team_member *m)
{
    ck_assert_int_ne(m->opened, CRUN_OK);
    if (m->team.rank == 1)
        ck_assert_msg(strstr(m->e.text, "cannot be reached") != NULL, "\"%s\"",
                      m->e.text);
}

static struct backend_calls
opened_by(crun_status (*open)(struct backend **b, const struct team *team,
                              uint64_t deadline_ms, struct err *e))
{
    struct backend_calls calls = backend_shm;

    calls.open = open;
    return calls;
}

TEST(a_process_of_another_user_gets_no_memory)
{
    struct backend_calls calls = opened_by(open_after_a_stranger);

    team_run(&(struct team_plan){ .calls = &calls, .size = 2, .body = sum_once });
}

TEST(memory_of_another_user_is_not_taken)
{
    struct backend_calls calls = opened_by(open_after_another_user);
    struct backend_calls others_file = opened_by(open_anothers_file);

    SKIP_UNLESS_ROOT();
    team_run(&(struct team_plan){ .calls = &calls, .size = 2, .body = sum_once });
    team_run(&(struct team_plan){ .calls = &others_file,
                                  .size = 2,
                                  .body = expect_refusal,
                                  .may_not_open = true,
                                  .open_ms = 2000 });
}
