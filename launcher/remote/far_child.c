/* SPDX-License-Identifier: MIT */
#include "launcher/remote/far_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/remote/channel.h"
#include "launcher/remote/push.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/run_folder.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/key_memory.h"

/* The child's ends of its pipes. */
struct child_ends {
    int in, out, err, status, go, listener, witness;
};

/* -- in the child ------------------------------------------------------------------ */

/* Moves a descriptor above the standard ones, where it stays open in no program. */
static int lift_fd(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 3 + 4);
}

static void arrange_fds(struct child_ends *ends)
{
    struct child_ends high = { .in = lift_fd(ends->in),
                               .out = lift_fd(ends->out),
                               .err = lift_fd(ends->err),
                               .status = lift_fd(ends->status),
                               .go = lift_fd(ends->go),
                               .listener = lift_fd(ends->listener),
                               .witness = lift_fd(ends->witness) };

    dup2(high.in, STDIN_FILENO);
    dup2(high.out, STDOUT_FILENO);
    dup2(high.err, STDERR_FILENO);
    ends->status = dup2(high.status, 3);
    ends->go = dup2(high.go, 4);
    ends->listener = dup2(high.listener, 5);
    ends->witness = dup2(high.witness, 6);
    fd_close_from(ends->witness < 0 ? 6 : 7);
    for (int fd = 3; fd < 7; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* Logs, scratch folders and error files of workers go to TMPDIR. */
static int check_room(struct err *e)
{
    static const char text[4096] = "crun\n";
    const char *folder = getenv("TMPDIR");
    char *path = xasprintf("%s/crun-room.XXXXXX", folder && *folder ? folder : "/tmp");
    int fd = mkostemp(path, O_CLOEXEC), errnum = fd < 0 ? errno : 0;

    if (fd >= 0) {
        if (write(fd, text, sizeof(text)) != (ssize_t)sizeof(text))
            errnum = errno ? errno : ENOSPC;
        close(fd);
        unlink(path);
    }
    if (errnum == ENOSPC || errnum == EDQUOT) {
        err_set_errno(e, errnum, "%.*s", (int)(strrchr(path, '/') - path), path);
        err_set_code(e, REMOTE_FULL, 0);
    }
    free(path);
    return errnum == ENOSPC || errnum == EDQUOT ? -1 : 0;
}

/* The key goes on in memory for secrets, which the parent could not have: that is empty
 * in a child. */
static int hide_key(struct remote_order *o, struct err *e)
{
    char *hidden = key_memory_create(strlen(o->key) + 1, e);

    if (!hidden)
        return -1;
    strcpy(hidden, o->key);
    explicit_bzero(o->key, strlen(o->key));
    free(o->key);
    o->key = hidden;
    return 0;
}

/* A copy of crun that runs with the libraries beside it goes on finding them. */
static void keep_libraries(void)
{
    const char *copied = getenv(PUSH_LIBRARIES), *path = getenv("LD_LIBRARY_PATH");
    char *both;

    if (!copied)
        return;
    both = path && *path ? xasprintf("%s:%s", path, copied) : xstrdup(copied);
    setenv("LD_LIBRARY_PATH", both, 1);
    unsetenv(PUSH_LIBRARIES);
    free(both);
}

static int prepare_node(const struct far_side_calls *calls, struct remote_order *o,
                        uint32_t *grace_ms, struct err *e)
{
    for (char **v = o->environment; *v; v++)
        putenv(*v);
    keep_libraries();
    if (chdir(o->folder) < 0) {
        err_set_errno(e, errno, "%s", o->folder);
        return err_set_code(e, REMOTE_NO_FOLDER, 0);
    }
    setenv("PWD", o->folder, 1);
    if (check_room(e) < 0 || hide_key(o, e) < 0)
        return -1;
    if (calls->prepare(calls->arg, o, grace_ms, e) == 0)
        return 0;
    return e->code ? -1 : err_set_code(e, REMOTE_BAD_FLAGS, 0);
}

static void write_status(int fd, const struct far_child_status *status)
{
    size_t size = sizeof(*status);

    (void)!fd_write_all(fd, status, &size);
    close(fd);
}

/* The start, as its JSON; false: the parent has gone. */
static bool read_start(int fd, struct remote_start *start)
{
    char text[65536];
    ssize_t n = fd_read_all(fd, text, sizeof(text));
    struct err e;

    close(fd);
    return n > 0 && remote_start_parse(text, (size_t)n, start, &e) == 0;
}

static void run_node_child(const struct far_side_calls *calls, struct remote_order *o,
                           struct child_ends *ends)
{
    static const int handled[] = { SIGTERM, SIGHUP, SIGINT, SIGCHLD, SIGPIPE };
    struct far_child_status status = { .refusal = 0 };
    struct remote_start start;
    struct err e;
    int code;

    for (size_t i = 0; i < sizeof(handled) / sizeof(*handled); i++)
        signal(handled[i], SIG_DFL);
    arrange_fds(ends);
    if (prepare_node(calls, o, &status.grace_ms, &e) < 0) {
        status.refusal = (uint8_t)e.code;
        snprintf(status.text, sizeof(status.text), "%s", e.text);
        write_status(ends->status, &status);
        _exit(2);
    }
    write_status(ends->status, &status);
    if (!read_start(ends->go, &start))
        _exit(0);
    if (!start.host)
        close(ends->listener);
    code = calls->run(calls->arg, o, &start, start.host ? ends->listener : 0,
                      ends->witness < 0 ? 0 : ends->witness);
    remote_start_clear(&start);
    exit(code);
}

/* -- in the parent ----------------------------------------------------------------- */

/* The file for the output of a job that outlives the launcher: in the user's folder
 * for state, ID.PID.log. */
static int open_log(const struct remote_order *o, char **path, struct err *e)
{
    char *folder = run_folder_state(true);
    int fd;

    *path = xasprintf("%s/%s.%d.log", folder, o->run_id, (int)getpid());
    for (char *c = *path + strlen(folder) + 1; *c; c++)
        if (*c == '/')
            *c = '_';
    free(folder);
    fd = fd_create_file(*path, O_APPEND, 0600);
    if (fd >= 0)
        return fd;
    err_set_errno(e, errno, "%s", *path);
    err_set_code(e, errno == ENOSPC ? REMOTE_FULL : REMOTE_NO_FOLDER, 0);
    free(*path);
    *path = NULL;
    return -1;
}

static int open_child_streams(struct far_child *c, struct child_ends *ends,
                              const struct remote_order *o, struct err *e)
{
    int in[2], out[2], err[2] = { -1, -1 };

    c->in = c->out = c->err = -1;
    if (o->detach) {
        ends->in = open("/dev/null", O_RDWR | O_CLOEXEC);
        ends->out = ends->err = open_log(o, &c->log, e);
        return ends->out < 0 ? -1 : 0;
    }
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 ||
        (!o->one_stream && pipe2(err, O_CLOEXEC) < 0))
        return err_set_errno(e, errno, "pipe");
    ends->in = in[0];
    ends->out = out[1];
    ends->err = o->one_stream ? out[1] : err[1];
    c->in = in[1];
    c->out = out[0];
    c->err = err[0];
    return 0;
}

static void set_nonblocking(int fd)
{
    if (fd >= 0)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void close_ends(const struct child_ends *ends)
{
    close(ends->in);
    close(ends->out);
    if (ends->err != ends->out)
        close(ends->err);
    close(ends->status);
    close(ends->go);
    if (ends->witness >= 0)
        close(ends->witness);
}

int far_child_start(struct far_child *c, const struct far_side_calls *calls,
                    struct remote_order *o, int listener, struct err *e)
{
    struct child_ends ends = { .listener = listener };
    pid_t parent = getpid();
    int status[2], go[2], witness[2] = { -1, -1 };

    *c = (struct far_child){ .pid = -1 };
    if (open_child_streams(c, &ends, o, e) < 0)
        return -1;
    if (pipe2(status, O_CLOEXEC) < 0 || pipe2(go, O_CLOEXEC) < 0 ||
        (!o->detach &&
         socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, witness) < 0))
        return err_set_errno(e, errno, "pipe");
    ends.status = status[1];
    ends.go = go[0];
    c->status = status[0];
    c->go = go[1];
    c->witness = witness[0];
    ends.witness = witness[1];
    c->pid = fork();
    if (c->pid < 0)
        return err_set_errno(e, errno, "fork");
    if (c->pid == 0) {
        /* signals of a terminal or of sshd to the parent's group are not for it */
        if (o->detach)
            setsid();
        else
            setpgid(0, 0);
        if (!o->detach && prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() != parent)
            _exit(1);
        run_node_child(calls, o, &ends);
    }
    close_ends(&ends);
    set_nonblocking(c->in);
    set_nonblocking(c->out);
    set_nonblocking(c->err);
    set_nonblocking(c->status);
    set_nonblocking(c->witness);
    return 0;
}
