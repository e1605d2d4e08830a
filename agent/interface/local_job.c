/* SPDX-License-Identifier: MIT */
#include "agent/interface/local_job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/interface/limits.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/net/listener.h"

struct local_job {
    struct loop *loop;
    struct local_job_calls calls;
    struct run_folder folder; /* fd -1: none */
    char name[32];            /* of its files, without their ends */
    struct listener *listener;
    struct job_record *record;
    struct loop_timer timer;
    uint64_t started_ms;
    bool has_tried, is_over;
};

/* -- connections ------------------------------------------------------------------- */

static void local_job_take(void *arg, int fd, enum frame_kind kind, const char *first,
                           const struct net_addr *peer, uint64_t since_ms)
{
    struct local_job *l = arg;
    struct ucred user;
    socklen_t len = sizeof(user);

    if (kind == FRAME_KIND_CONTROL &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &len) == 0 &&
        (user.uid == geteuid() || user.uid == 0))
        l->calls.connected(l->calls.arg, fd, user.uid);
    else
        close(fd);
}

static bool local_job_make_room(void *arg, const struct net_addr *from)
{
    struct local_job *l = arg;

    return listener_waiting(l->listener) < LOCAL_UNIDENTIFIED_MAX ||
           listener_drop_oldest(l->listener);
}

/* -- socket and record ------------------------------------------------------------- */

static void fill_facts(struct local_job *l, struct job_facts *facts)
{
    *facts = (struct job_facts){ .instance = "", .started_ms = l->started_ms };
    l->calls.facts(l->calls.arg, facts);
}

static void local_job_write(struct local_job *l)
{
    struct job_facts facts;

    fill_facts(l, &facts);
    job_record_write(l->record, &l->folder, l->name, &facts);
}

/* Processes of several pid namespaces may share the folder, and have the same pid. */
static int local_job_listen(struct local_job *l)
{
    char file[sizeof(l->name) + 8];
    int fd = -1;

    for (unsigned i = 1; i <= LOCAL_NAMES_MAX && fd < 0; i++) {
        if (i == 1)
            snprintf(l->name, sizeof(l->name), "%d", (int)getpid());
        else
            snprintf(l->name, sizeof(l->name), "%d-%u", (int)getpid(), i);
        snprintf(file, sizeof(file), "%s.sock", l->name);
        fd = run_folder_listen(&l->folder, file);
        if (fd < 0 && errno != EADDRINUSE)
            break;
    }
    return fd;
}

static void local_job_shut(struct local_job *l)
{
    listener_destroy(l->listener);
    l->listener = NULL;
    run_folder_close(&l->folder);
}

static void local_job_open(struct local_job *l)
{
    struct listener_calls calls = { .arrived = local_job_take,
                                    .make_room = local_job_make_room,
                                    .arg = l };
    struct err e;
    int fd = -1;

    if (run_folder_make(&l->folder, &e) == 0) {
        fd = local_job_listen(l);
        if (fd < 0)
            (void)err_set_errno(&e, errno, "%s", l->folder.path);
    }
    if (fd >= 0) {
        l->listener = listener_adopt(l->loop, fd, &calls);
        local_job_write(l);
    } else {
        if (!l->has_tried)
            log_info("crunctl will not find this job: %s", e.text);
        local_job_shut(l);
    }
    l->has_tried = true;
}

static bool local_job_is_there(const struct local_job *l)
{
    char file[sizeof(l->name) + 8];
    struct stat st;

    snprintf(file, sizeof(file), "%s.sock", l->name);
    return run_folder_is_there(&l->folder) &&
           fstatat(l->folder.fd, file, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void on_local_timer(void *arg)
{
    struct local_job *l = arg;

    if (l->listener && !local_job_is_there(l))
        local_job_shut(l);
    if (!l->listener)
        local_job_open(l);
    loop_timer_arm(&l->timer, clock_ms() + LOCAL_CHECK_MS);
}

/* -- the whole --------------------------------------------------------------------- */

struct local_job *local_job_create(struct loop *loop,
                                   const struct local_job_calls *calls)
{
    struct local_job *l = xcalloc(1, sizeof(*l));

    l->loop = loop;
    l->calls = *calls;
    l->folder.fd = -1;
    l->record = job_record_create();
    l->started_ms = clock_wall_ms();
    loop_timer_init(&l->timer, loop, on_local_timer, l);
    loop_timer_arm(&l->timer, clock_ms() + LOCAL_OPEN_AFTER_MS);
    return l;
}

void local_job_update(struct local_job *l)
{
    if (l->listener)
        local_job_write(l);
}

void local_job_add_event(struct local_job *l, const struct msg_event *event)
{
    if (!l->is_over)
        job_record_add_event(l->record, event);
}

bool local_job_leaves_record(const struct local_job *l, int exit_code)
{
    return l->listener || (!l->has_tried && exit_code != 0);
}

/* A reader finds the job in one of both places at each moment, and never a socket
 * without a process. */
void local_job_end(struct local_job *l, const struct job_result *result)
{
    char file[sizeof(l->name) + 8];
    struct job_facts facts;

    fill_facts(l, &facts);
    if (result && facts.end_file)
        job_record_write_end_file(&facts, result);
    if (result && local_job_leaves_record(l, result->exit_code) && !l->listener)
        local_job_open(l);
    l->is_over = true;
    loop_timer_cancel(&l->timer);
    if (!l->listener)
        return;
    if (result)
        job_record_end(l->record, &l->folder, l->name, &facts, result);
    snprintf(file, sizeof(file), "%s.sock", l->name);
    run_folder_remove(&l->folder, file);
    snprintf(file, sizeof(file), "%s.json", l->name);
    run_folder_remove(&l->folder, file);
    snprintf(file, sizeof(file), "%s.events", l->name);
    run_folder_remove(&l->folder, file);
    local_job_shut(l);
}

void local_job_destroy(struct local_job *l)
{
    if (!l)
        return;
    local_job_shut(l);
    loop_timer_fini(&l->timer);
    job_record_destroy(l->record);
    free(l);
}
