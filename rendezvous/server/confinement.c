/* SPDX-License-Identifier: MIT */
/*
 * An attacker who takes over crund gets the jobs that it serves and nothing else:
 * Landlock refuses files and TCP, seccomp refuses programs and the parts of the kernel
 * that crund does not use.
 */
#include "rendezvous/server/confinement.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/server/peer_list.h"

#ifdef CRUN_SECCOMP
#include <sched.h>
#include <seccomp.h>
#include <sys/socket.h>
#endif

void confinement_hide_memory(void)
{
    (void)!prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

/* -- Landlock ---------------------------------------------------------------------- */

/* Newer than the headers of some systems. */
#define FS_REFER (1ULL << 13)     /* version 2 */
#define FS_TRUNCATE (1ULL << 14)  /* 3 */
#define FS_IOCTL_DEV (1ULL << 15) /* 5 */
#define NET_ALL 3ULL              /* 4: to bind and to connect TCP sockets */
#define NET_CONNECT 2ULL
#define RULE_NET_PORT 2
#define SCOPE_SIGNAL 2ULL /* 6: to processes outside */

#define FS_FIRST (FS_REFER - 1) /* all of version 1 */
#define FS_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define FS_KEEP                                                                        \
    (FS_READ | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_FILE |        \
     LANDLOCK_ACCESS_FS_MAKE_REG | FS_TRUNCATE)

/* A file is made beside it, written and renamed. */
#define FS_REPLACE                                                                     \
    (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_FILE |                  \
     LANDLOCK_ACCESS_FS_MAKE_REG)

/* As the kernel has it since version 6; earlier ones take the part that they know, if
 * the rest is 0. */
struct ruleset {
    uint64_t fs, net, scoped;
};

static struct ruleset ruleset_of_version(long version)
{
    return (struct ruleset){ .fs = FS_FIRST | (version >= 2 ? FS_REFER : 0) |
                                   (version >= 3 ? FS_TRUNCATE : 0) |
                                   (version >= 5 ? FS_IOCTL_DEV : 0),
                             .net = version >= 4 ? NET_ALL : 0,
                             .scoped = version >= 6 ? SCOPE_SIGNAL : 0 };
}

/* A path that does not exist needs no rule. */
static bool landlock_allow(int rules, const char *path, uint64_t access)
{
    struct landlock_path_beneath_attr rule = { .allowed_access = access };
    bool done;

    rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0)
        return errno == ENOENT;
    done = syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule,
                   0) == 0;
    close(rule.parent_fd);
    return done;
}

static bool landlock_allow_folder_of(int rules, const char *path, uint64_t access)
{
    char folder[PATH_MAX], *slash;

    snprintf(folder, sizeof(folder), "%s", path);
    slash = strrchr(folder, '/');
    if (!slash)
        snprintf(folder, sizeof(folder), ".");
    else
        slash[slash == folder] = '\0';
    return landlock_allow(rules, folder, access);
}

/* A key file may be replaced, and then has another inode: its folder is allowed, and
 * the one that a link leads to. */
static bool landlock_allow_keys(int rules, const char *path)
{
    char real[PATH_MAX];
    struct stat st;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return landlock_allow(rules, path, FS_READ);
    return landlock_allow_folder_of(rules, path, FS_READ) &&
           (!realpath(path, real) || landlock_allow_folder_of(rules, real, FS_READ));
}

/* As the kernel has it since version 4. */
static bool landlock_allow_peers(int rules, const struct peers *peers)
{
    struct {
        uint64_t access, port;
    } rule = { .access = NET_CONNECT };
    bool done = true;

    for (unsigned i = 0; i < peers->count; i++) {
        rule.port = net_port(&peers->list[i].addr);
        done &= syscall(SYS_landlock_add_rule, rules, RULE_NET_PORT, &rule, 0) == 0;
    }
    return done;
}

/* The version that is in force, or 0 with errno. */
static long confine_files(const char *state_dir, const char *key_path,
                          const char *metrics_file, const struct peers *peers)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0,
                           LANDLOCK_CREATE_RULESET_VERSION);
    struct ruleset all = ruleset_of_version(version);
    int rules, errnum;
    bool done;

    if (version < 1)
        return 0;
    rules = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof(all), 0);
    if (rules < 0)
        return 0;
    done = (!state_dir || landlock_allow(rules, state_dir, all.fs & FS_KEEP)) &&
           (!key_path || landlock_allow_keys(rules, key_path)) &&
           (!metrics_file ||
            landlock_allow_folder_of(rules, metrics_file, all.fs & FS_REPLACE)) &&
           /* for the owner of a connection, where the kernel has no sock_diag */
           landlock_allow(rules, "/proc/self/net", FS_READ) &&
           landlock_allow(rules, "/proc/self/uid_map", LANDLOCK_ACCESS_FS_READ_FILE) &&
           landlock_allow(rules, "/etc/passwd", LANDLOCK_ACCESS_FS_READ_FILE) &&
           (!peers || version < 4 || landlock_allow_peers(rules, peers)) &&
           syscall(SYS_landlock_restrict_self, rules, 0) == 0;
    errnum = errno;
    close(rules);
    errno = errnum;
    return done ? version : 0;
}

/* -- seccomp ------------------------------------------------------------------------
 */

#ifdef CRUN_SECCOMP
static const int refused_calls[] = {
    /* programs and processes */
    SCMP_SYS(execve),
    SCMP_SYS(execveat),
    SCMP_SYS(fork),
    SCMP_SYS(vfork),
    /* other processes */
    SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(kcmp),
    /* other views of the system */
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(move_mount),
    SCMP_SYS(open_tree),
    SCMP_SYS(fsopen),
    SCMP_SYS(fsmount),
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(open_by_handle_at),
    /* large parts of the kernel that it has no use for */
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(io_uring_enter),
    SCMP_SYS(io_uring_register),
    SCMP_SYS(keyctl),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(memfd_create),
    SCMP_SYS(personality),
};

/* The last two are needed to connect to peers. */
static const int refused_families[] = { AF_PACKET, AF_VSOCK, AF_INET, AF_INET6 };

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static bool filter_fill(scmp_filter_ctx filter, bool connects)
{
    bool done = true;

    for (size_t i = 0; i < COUNT(refused_calls); i++)
        done &= seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), refused_calls[i], 0) ==
                0;
    for (size_t i = 0; i < COUNT(refused_families) - (connects ? 2 : 0); i++)
        done &= seccomp_rule_add(
                    filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(socket), 1,
                    SCMP_A0(SCMP_CMP_EQ, (unsigned)refused_families[i], 0)) == 0;
    /* a thread may be started; clone3 hides its flags, and the C library then uses
     * clone */
    done &= seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                             SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0)) == 0;
    done &= seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0;
    return done;
}

#define CALLS_FREE "the kernel has refused seccomp"

static bool confine_calls(bool connects)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    bool done = filter && filter_fill(filter, connects) && seccomp_load(filter) == 0;

    seccomp_release(filter);
    return done;
}
#else
#define CALLS_FREE "built without libseccomp"

static bool confine_calls(bool connects)
{
    return false;
}
#endif

/* -- the whole ----------------------------------------------------------------------
 */

char *confinement_enter(const char *state_dir, const char *key_path,
                        const char *metrics_file, const struct peers *peers, char *buf,
                        size_t size)
{
    char files[64] = "", files_free[64] = "";
    bool privileges, calls;
    long landlock;

    tzset(); /* its file is out of reach later */
    privileges = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
    landlock = privileges ? confine_files(state_dir, key_path, metrics_file, peers) : 0;
    if (!landlock)
        snprintf(files_free, sizeof(files_free), " files (Landlock: %s)",
                 strerror(errno));
    calls = privileges && confine_calls(peers != NULL);
    if (landlock)
        snprintf(files, sizeof(files), ", no other files%s (Landlock %ld)",
                 landlock >= 4 ? " or TCP ports" : "", landlock);
    snprintf(buf, size, "locked in: memory hidden%s%s%s%s%s%s",
             privileges ? ", no new privileges" : "", files,
             calls ? ", no programs (seccomp)" : "",
             landlock && calls ? "" : "; not:", files_free,
             calls ? "" : " programs (" CALLS_FREE ")");
    return buf;
}
