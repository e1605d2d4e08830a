/* SPDX-License-Identifier: MIT */
#include "agent/guard/guard_template.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/guard/guard_events.h"
#include "agent/guard/guard_workers.h"
#include "agent/guard/oom_kills.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/limits.h"

enum spawn_state {
    SPAWN_NONE,
    SPAWN_HELD, /* until the template is ready, or its socket has room */
    SPAWN_ASKED /* the template has the request; the answer is due until until_ms */
};

struct template_spawn {
    enum spawn_state state;
    int channel;
    uint64_t until_ms;
    struct guard_request request;
    int fd[GUARD_REQUEST_FDS];
};

static struct {
    int epoll;
    struct template_tags tags;
    const struct cgroup *job;
    struct cgroup workers, own; /* below the job's, from the first template on */

    pid_t pid; /* 0: none */
    int socket;
    bool ready, killed, tried; /* tried: no worker waits for a template any more */
    enum template_fault fault;
    uint64_t ready_until_ms;
    uint32_t ready_ms, answer_ms;

    struct template_spawn spawn[WORKERS_PER_NODE_MAX];
    uint32_t end, count; /* one above the highest local rank so far; not SPAWN_NONE */
} template;

const char *template_fault_text(enum template_fault fault)
{
    static const char *const texts[TEMPLATE_FAULT_COUNT] = {
        [TEMPLATE_NO_FAULT] = "it ended by itself",
        [TEMPLATE_NOT_STARTED] = "it cannot be started",
        [TEMPLATE_NEVER_READY] = "its imports take too long",
        [TEMPLATE_NO_ANSWER] = "it does not answer",
        [TEMPLATE_WRONG_ANSWER] = "it answers with the pid of another process",
        [TEMPLATE_GONE] = "it or its fork ended before the answer",
        [TEMPLATE_IMPORTS] = "it imports again",
        [TEMPLATE_OUT_OF_MEMORY] = "the kernel killed it for lack of memory",
        [TEMPLATE_NOT_ADOPTED] = "its fork cannot get the workers' cgroup or CPUs",
    };

    return fault < TEMPLATE_FAULT_COUNT ? texts[fault] : "?";
}

void guard_template_init(int epoll, const struct cgroup *job,
                         const struct template_tags *tags)
{
    template.epoll = epoll;
    template.job = job;
    template.tags = *tags;
    template.own = template.workers = CGROUP_NONE;
    template.socket = -1;
}

static void watch_descriptor(int op, int fd, uint32_t events, uint32_t tag)
{
    struct epoll_event event = { .events = events, .data.u32 = tag };

    epoll_ctl(template.epoll, op, fd, &event);
}

/* -- a worker that was not started yet ------------------------------------------ */

/* Closed with an unread message in it, the channel would lose "go". */
static void close_channel(struct template_spawn *s)
{
    char unread[16];

    if (s->channel < 0)
        return;
    while (recv(s->channel, unread, sizeof(unread), MSG_DONTWAIT) > 0)
        ;
    epoll_ctl(template.epoll, EPOLL_CTL_DEL, s->channel, NULL);
    close(s->channel);
    s->channel = -1;
}

static void forget_spawn(struct template_spawn *s)
{
    close_channel(s);
    for (int i = 0; i < GUARD_REQUEST_FDS; i++)
        close(s->fd[i]);
    s->state = SPAWN_NONE;
    template.count--;
}

static void start_cold(struct template_spawn *s, enum template_fault fault)
{
    guard_events_add((struct guard_event){ .type = GUARD_EVENT_COLD,
                                           .local_rank = s->request.local_rank,
                                           .stage = fault });
    close_channel(s); /* a fork that still comes exits */
    guard_workers_spawn(&s->request, s->fd);
    forget_spawn(s);
}

/* Those that are in this state or before it. */
static void start_all_cold(enum spawn_state last, enum template_fault fault)
{
    for (uint32_t i = 0; template.count > 0 && i < template.end; i++)
        if (template.spawn[i].state != SPAWN_NONE && template.spawn[i].state <= last)
            start_cold(&template.spawn[i], fault);
}

void guard_template_drop(uint32_t local_rank, int signo)
{
    struct template_spawn *s = &template.spawn[local_rank];

    if (s->state == SPAWN_NONE)
        return;
    forget_spawn(s);
    guard_events_add((struct guard_event){ .type = GUARD_EVENT_EXITED,
                                           .local_rank = local_rank,
                                           .status = signo,
                                           .nothing_left = guard_workers_is_empty(),
                                           .at_ms = clock_ms() });
}

void guard_template_drop_all(int signo)
{
    for (uint32_t i = 0; template.count > 0 && i < template.end; i++)
        guard_template_drop(i, signo);
}

bool guard_template_has(uint32_t local_rank)
{
    return template.spawn[local_rank].state != SPAWN_NONE;
}

bool guard_template_has_any(void)
{
    return template.count > 0;
}

/* -- its end -------------------------------------------------------------------- */

static void close_socket(void)
{
    if (template.socket < 0)
        return;
    epoll_ctl(template.epoll, EPOLL_CTL_DEL, template.socket, NULL);
    close(template.socket);
    template.socket = -1;
}

/* Workers that it was asked for may still come; those it was not asked for start cold.
 */
static void end_template(enum template_fault fault)
{
    close_socket();
    if (template.pid != 0 && !template.killed) {
        template.fault = fault == TEMPLATE_GONE ? TEMPLATE_NO_FAULT : fault;
        template.killed = true;
        kill(template.pid, SIGKILL);
    }
    template.ready = false;
    template.tried = true;
    start_all_cold(SPAWN_HELD, fault);
}

static void report_ended(int status)
{
    if (oom_kills_claim(status))
        template.fault = TEMPLATE_OUT_OF_MEMORY;
    guard_events_add((struct guard_event){ .type = GUARD_EVENT_TEMPLATE_ENDED,
                                           .pid = template.pid,
                                           .status = status,
                                           .stage = template.fault });
}

void guard_template_reap(void)
{
    int status;

    if (template.pid == 0 || waitpid(template.pid, &status, WNOHANG) != template.pid)
        return;
    guard_workers_read_errors(); /* why it could not be executed */
    guard_workers_except(0);
    report_ended(status);
    template.pid = 0;
    end_template(TEMPLATE_GONE);
}

void guard_template_give_up(void)
{
    close_socket();
    if (template.pid != 0)
        kill(template.pid, SIGKILL);
    template.pid = 0; /* an orphan like any other */
    guard_workers_except(0);
    guard_template_drop_all(SIGKILL);
    guard_workers_set_cgroup(template.job);
}

/* -- the handshake -------------------------------------------------------------- */

/* Sends the request with the worker's end of a new channel. 0, or -1 and errno. */
static int send_template_request(const struct template_spawn *s, int channel)
{
    struct template_request request = { .argc = s->request.argc,
                                        .envc = s->request.envc,
                                        .is_tty = s->request.is_tty,
                                        .numa_node = s->request.numa_node };
    const int fd[TEMPLATE_REQUEST_FDS] = { s->fd[0], s->fd[1], s->fd[2], s->fd[3],
                                           channel };
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(fd))];
    } control = { .header = { .cmsg_level = SOL_SOCKET,
                              .cmsg_type = SCM_RIGHTS,
                              .cmsg_len = CMSG_LEN(sizeof(fd)) } };
    struct iovec iov = { &request, sizeof(request) };
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = sizeof(control) };

    memcpy(CMSG_DATA(&control.header), fd, sizeof(fd));
    return sendmsg(template.socket, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -1 : 0;
}

/* False, and nothing has changed, if the socket has no room. */
static bool ask_template(struct template_spawn *s)
{
    int pair[2], on = 1, rc, errnum;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        start_cold(s, TEMPLATE_NO_ANSWER);
        return true;
    }
    setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
    rc = send_template_request(s, pair[1]);
    errnum = errno;
    close(pair[1]);
    if (rc == 0) {
        s->state = SPAWN_ASKED;
        s->channel = pair[0];
        s->until_ms = clock_ms() + template.answer_ms;
        watch_descriptor(EPOLL_CTL_ADD, pair[0], EPOLLIN,
                         template.tags.channels + s->request.local_rank);
        return true;
    }
    close(pair[0]);
    if (errnum == EAGAIN)
        return false;
    start_cold(s, TEMPLATE_NO_ANSWER);
    return true;
}

static void ask_for_all_held(void)
{
    bool has_room = true;

    for (uint32_t i = 0; has_room && i < template.end; i++)
        if (template.spawn[i].state == SPAWN_HELD)
            has_room = ask_template(&template.spawn[i]);
    watch_descriptor(EPOLL_CTL_MOD, template.socket,
                     EPOLLIN | EPOLLRDHUP | (has_room ? 0 : EPOLLOUT),
                     template.tags.socket);
}

bool guard_template_spawn(const struct guard_request *request,
                          int fd[GUARD_REQUEST_FDS])
{
    struct template_spawn *s = &template.spawn[request->local_rank];

    if (template.pid == 0 || template.killed || (template.tried && !template.ready) ||
        fd[GUARD_REQUEST_FDS - 1] < 0)
        return false;
    *s = (struct template_spawn){ .state = SPAWN_HELD,
                                  .channel = -1,
                                  .request = *request };
    for (int i = 0; i < GUARD_REQUEST_FDS; i++) {
        s->fd[i] = fd[i];
        fd[i] = -1;
    }
    template.count++;
    if (request->local_rank >= template.end)
        template.end = request->local_rank + 1;
    if (template.ready)
        ask_for_all_held();
    return true;
}

/* The pid that the other end of the channel has written, which must be its writer's.
 * If there is none, 0 and the fault; without a fault it is still to come. */
static pid_t read_answer(int channel, enum template_fault *fault)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    char text[16];
    struct iovec iov = { text, sizeof(text) - 1 };
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = sizeof(control) };
    ssize_t n = recvmsg(channel, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    struct ucred writer = { .pid = 0 };

    *fault = TEMPLATE_NO_FAULT;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    *fault = n <= 0 ? TEMPLATE_GONE : TEMPLATE_WRONG_ANSWER;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS)
        memcpy(&writer, CMSG_DATA(c), sizeof(writer));
    text[n > 0 ? n : 0] = '\0';
    return strtol(text, NULL, 10) == writer.pid ? writer.pid : 0;
}

/* A fork that ends before it is adopted is not the template's fault. */
static enum template_fault adoption_fault(int errnum)
{
    if (errnum == EEXIST)
        return TEMPLATE_WRONG_ANSWER;
    return errnum == ECHILD || errnum == ESRCH || errnum == EPIPE
               ? TEMPLATE_GONE
               : TEMPLATE_NOT_ADOPTED;
}

void guard_template_on_channel(uint32_t local_rank)
{
    struct template_spawn *s = &template.spawn[local_rank];
    enum template_fault fault;
    pid_t pid;

    if (s->state != SPAWN_ASKED)
        return; /* it was dropped in this turn */
    pid = read_answer(s->channel, &fault);
    if (pid == 0 && fault == TEMPLATE_NO_FAULT)
        return;
    if (pid > 0 && guard_workers_adopt(&s->request, s->fd[3], pid, s->channel) == 0) {
        guard_events_add((struct guard_event){
            .type = GUARD_EVENT_WARM, .local_rank = local_rank, .pid = pid });
        forget_spawn(s);
        return;
    }
    if (pid > 0)
        fault = adoption_fault(errno);
    start_cold(s, fault);
    if (fault == TEMPLATE_WRONG_ANSWER)
        end_template(fault);
}

/* -- its messages --------------------------------------------------------------- */

static void read_message(void)
{
    char text[64];
    ssize_t n = recv(template.socket, text, sizeof(text), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        end_template(TEMPLATE_GONE);
    else if (!template.ready && n == 5 && memcmp(text, "ready", 5) == 0) {
        template.ready = template.tried = true;
        guard_events_add((struct guard_event){ .type = GUARD_EVENT_TEMPLATE_READY,
                                               .pid = template.pid });
        ask_for_all_held();
    } else {
        /* A ready template that imports again is waited for by no worker. */
        if (template.ready)
            start_all_cold(SPAWN_ASKED, TEMPLATE_IMPORTS);
        template.ready = false;
        template.ready_until_ms = clock_ms() + template.ready_ms;
    }
}

void guard_template_on_socket(uint32_t events)
{
    if (template.socket >= 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP | EPOLLERR)))
        read_message();
    if (template.socket >= 0 && template.ready && (events & EPOLLOUT))
        ask_for_all_held();
}

/* -- its limits ----------------------------------------------------------------- */

static uint64_t enforce_answers(uint64_t now_ms, uint64_t next_ms)
{
    for (uint32_t i = 0; template.count > 0 && i < template.end; i++) {
        struct template_spawn *s = &template.spawn[i];

        if (s->state != SPAWN_ASKED)
            continue;
        if (now_ms >= s->until_ms) {
            start_cold(s, TEMPLATE_NO_ANSWER);
            end_template(TEMPLATE_NO_ANSWER);
        } else if (s->until_ms < next_ms) {
            next_ms = s->until_ms;
        }
    }
    return next_ms;
}

int guard_template_advance(void)
{
    bool imports = template.pid != 0 && !template.ready && !template.killed;
    uint64_t now_ms, next_ms = UINT64_MAX;

    if (!imports && template.count == 0)
        return -1;
    now_ms = clock_ms();
    if (imports && now_ms >= template.ready_until_ms)
        end_template(TEMPLATE_NEVER_READY);
    else if (imports)
        next_ms = template.ready_until_ms;
    next_ms = enforce_answers(now_ms, next_ms);
    return next_ms == UINT64_MAX ? -1 : (int)(next_ms - now_ms);
}

/* -- its start ------------------------------------------------------------------ */

static int make_cgroup(struct cgroup *g, const char *name)
{
    *g = CGROUP_NONE;
    if (mkdirat(template.job->dir, name, 0755) < 0 && errno != EEXIST)
        return -1;
    g->dir = openat(template.job->dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return g->dir < 0 ? -1 : 0;
}

/* From here on the workers have a cgroup of their own in the job's, too. */
static int make_cgroups(void)
{
    if (template.job->dir < 0 || template.own.dir >= 0)
        return 0;
    if (template.workers.dir < 0 && make_cgroup(&template.workers, "workers") < 0)
        return -1;
    if (make_cgroup(&template.own, "template") < 0)
        return -1;
    guard_workers_set_cgroup(&template.workers);
    watch_descriptor(EPOLL_CTL_ADD, cgroup_watch(&template.workers), EPOLLPRI | EPOLLET,
                     template.tags.cgroup);
    return 0;
}

static pid_t spawn_template(const struct guard_request *request,
                            const int fd[GUARD_REQUEST_FDS], int socket)
{
    struct spawn_home home = *guard_workers_home();
    struct spawn s = { .local_rank = GUARD_ALL, .numa_node = -1, .socket = socket };
    struct guard_payload payload;
    int pidfd;
    pid_t pid;

    home.cgroup = template.own.dir;
    home.clone_into_works = home.clone_into_fails = false;
    memcpy(s.fd, fd, sizeof(s.fd));
    if (guard_payload_open(&payload, fd[3], request, &s) < 0)
        return -1;
    pid = spawn_worker(&s, &home, &pidfd);
    guard_payload_close(&payload);
    if (pid > 0 && pidfd >= 0)
        close(pidfd);
    return pid;
}

void guard_template_start(const struct guard_request *request,
                          const int fd[GUARD_REQUEST_FDS])
{
    int pair[2];

    if (template.pid != 0)
        return;
    template.ready = template.killed = false;
    template.fault = TEMPLATE_NO_FAULT;
    template.ready_ms = request->ready_ms;
    template.answer_ms = request->answer_ms;
    template.ready_until_ms = clock_ms() + request->ready_ms;
    if (fd[3] >= 0 && make_cgroups() == 0 &&
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
        pid_t pid = spawn_template(request, fd, pair[1]);

        close(pair[1]);
        template.pid = pid > 0 ? pid : 0;
        template.socket = pair[0];
    }
    if (template.pid == 0) {
        template.fault = TEMPLATE_NOT_STARTED;
        report_ended(127 << 8);
        end_template(TEMPLATE_NOT_STARTED);
        return;
    }
    guard_workers_except(template.pid);
    watch_descriptor(EPOLL_CTL_ADD, template.socket, EPOLLIN | EPOLLRDHUP,
                     template.tags.socket);
}
