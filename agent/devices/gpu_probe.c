/* SPDX-License-Identifier: MIT */
#include "agent/devices/gpu_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/devices/gpu_visible.h"
#include "agent/devices/limits.h"
#include "agent/devices/nvml.h"
#include "agent/guard/spawn.h"
#include "rendezvous/common/base/fd.h"

#define PROBE_SOCKET 3
#define XID_WAIT_MS 60000
#define XID_RETRY_S 10 /* a lost GPU makes every wait fail at once */

/* -- the agent's side ----------------------------------------------------------- */

static int spawn_probe(int socket, uint32_t workers)
{
    extern char **environ;
    char count[16];
    char *argv[] = { (char *)GPU_PROBE_ARGV0, count, NULL };
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t all;
    pid_t pid;
    int rc;

    snprintf(count, sizeof(count), "%u", workers);
    sigfillset(&all);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &all);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_init(&actions);
    /* a reader of crun's output must not wait for a hung driver */
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, STDIN_FILENO, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, STDIN_FILENO, STDERR_FILENO);
    /* via a second number: a dup2 onto itself would keep close-on-exec */
    posix_spawn_file_actions_adddup2(&actions, socket, PROBE_SOCKET + 1);
    posix_spawn_file_actions_adddup2(&actions, PROBE_SOCKET + 1, PROBE_SOCKET);
    rc = posix_spawn(&pid, "/proc/self/exe", &actions, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    return rc;
}

int gpu_probe_start(uint32_t workers, struct err *e)
{
    int pair[2], rc;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set_errno(e, errno,
                             "start the process that monitors GPUs: socketpair");
    rc = spawn_probe(pair[1], workers);
    close(pair[1]);
    if (rc == 0)
        return pair[0];
    close(pair[0]);
    return err_set_errno(e, rc, "start the process that monitors GPUs");
}

bool gpu_probe_request(int socket)
{
    return send(socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 || errno == EAGAIN;
}

/* -- the process ---------------------------------------------------------------- */

static struct probe {
    struct nvml nvml;
    struct nvml_events *events;
    uint32_t count;
    struct nvml_device *device[GPUS_PER_NODE_MAX]; /* NULL: does not answer */
    struct nvml_device *part[GPUS_PER_NODE_MAX];   /* of it that is used; NULL: all */
    unsigned instance[GPUS_PER_NODE_MAX];          /* of that part, in events */
    /* written by the reading thread alone; the XID thread uses address */
    struct gpu_health health[GPUS_PER_NODE_MAX];
    char address[GPUS_PER_NODE_MAX][sizeof(((struct gpu_health *)0)->address)];
} probe;

/* Sends one packet, from either thread.
 * If the agent does not read any more, it has ended. */
static void send_probe_event(const struct gpu_probe_event *t)
{
    if (send(PROBE_SOCKET, t, sizeof(*t), MSG_NOSIGNAL) < 0 && errno != EINTR)
        _exit(EXIT_SUCCESS);
}

static void send_health_of_all(void)
{
    struct gpu_probe_event complete = { .type = GPU_PROBE_COMPLETE,
                                        .count = probe.count };

    for (uint32_t i = 0; i < probe.count; i++) {
        struct gpu_probe_event t = { .type = GPU_PROBE_HEALTH, .at = i };

        gpu_health_read(&probe.health[i], &probe.nvml, probe.device[i], probe.part[i]);
        t.health = probe.health[i];
        send_probe_event(&t);
    }
    send_probe_event(&complete);
}

/*
 * Of a GPU with parts, CUDA uses the one that CUDA_VISIBLE_DEVICES names, or the first:
 * its memory is the job's, not that of the others.
 */
static void find_worker_part(uint32_t at, const char *visible)
{
    const struct nvml *n = &probe.nvml;
    char wanted[96] = "", uuid[96];
    struct nvml_device *part;
    unsigned max = 0;

    probe.instance[at] = NVML_NO_INSTANCE;
    gpu_visible_part_uuid(visible, at, wanted, sizeof(wanted));
    if (!n->part_max || !n->part || n->part_max(probe.device[at], &max) != NVML_OK)
        return;
    for (unsigned i = 0; i < max; i++) {
        if (n->part(probe.device[at], i, &part) != NVML_OK ||
            n->uuid(part, uuid, sizeof(uuid)) != NVML_OK ||
            (*wanted && strcmp(uuid, wanted) != 0))
            continue;
        probe.part[at] = part;
        if (!n->instance || n->instance(part, &probe.instance[at]) != NVML_OK)
            probe.instance[at] = NVML_NO_INSTANCE;
        return;
    }
}

/* Finds GPU number `at` of the workers among those of the machine. */
static void find_worker_gpu(uint32_t at, const char *visible)
{
    char wanted[32], address[32];
    struct nvml_device *device;
    unsigned count = 0;

    probe.health[at].index = at;
    if (probe.nvml.count(&count) != NVML_OK ||
        !gpu_visible_pci_address(visible, at, wanted, sizeof(wanted)))
        return;
    for (unsigned i = 0; i < count; i++) {
        if (probe.nvml.device(i, &device) != NVML_OK ||
            strcmp(nvml_address(&probe.nvml, device, address), wanted) != 0)
            continue;
        probe.device[at] = device;
        probe.health[at].index = i;
        find_worker_part(at, visible);
        gpu_health_identify(&probe.health[at], &probe.nvml, device, probe.part[at]);
        memcpy(probe.address[at], probe.health[at].address, sizeof(probe.address[at]));
        return;
    }
}

static void find_worker_gpus(uint32_t workers)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    probe.count = gpu_visible_count(visible);
    if (probe.count > workers)
        probe.count = workers;
    if (probe.count > GPUS_PER_NODE_MAX)
        probe.count = GPUS_PER_NODE_MAX;
    for (uint32_t i = 0; i < probe.count; i++)
        find_worker_gpu(i, visible);
}

/* Whether the event is of that GPU, and not of a part of it that other jobs use. */
static bool concerns_worker(const struct nvml_event *event, const char *address,
                            uint32_t at)
{
    bool same = probe.device[at] == event->device ||
                (*address && strcmp(probe.address[at], address) == 0);

    return same && (event->gpu_instance == NVML_NO_INSTANCE ||
                    probe.instance[at] == NVML_NO_INSTANCE ||
                    event->gpu_instance == probe.instance[at]);
}

static void send_xid(const struct nvml_event *event)
{
    struct gpu_probe_event t = { .type = GPU_PROBE_XID, .xid = event->data };
    char address[32];

    nvml_address(&probe.nvml, event->device, address);
    for (uint32_t i = 0; i < probe.count; i++)
        if (concerns_worker(event, address, i)) {
            t.at = i;
            send_probe_event(&t);
            return;
        }
}

/* Runs in a separate thread: while a reading hangs, its cause may arrive as an XID. */
static void *wait_for_xids(void *arg)
{
    struct nvml_event event;

    for (;;) {
        int rc = probe.nvml.wait(probe.events, &event, XID_WAIT_MS);

        if (rc == NVML_OK && event.type == NVML_EVENT_XID)
            send_xid(&event);
        else if (rc != NVML_OK && rc != NVML_TIMEOUT)
            sleep(XID_RETRY_S);
    }
    return NULL;
}

static void start_xid_thread(void)
{
    const struct nvml *n = &probe.nvml;
    bool registered = false;
    pthread_t thread;

    if (!n->events || !n->register_events || !n->wait ||
        n->events(&probe.events) != NVML_OK)
        return;
    for (uint32_t i = 0; i < probe.count; i++)
        registered |= probe.device[i] &&
                      n->register_events(probe.device[i], NVML_EVENT_XID,
                                         probe.events) == NVML_OK;
    if (registered)
        pthread_create(&thread, NULL, wait_for_xids, NULL);
}

static bool is_gpu_probe(int argc, char **argv)
{
    int type = 0;
    socklen_t size = sizeof(type);

    return argc == 2 && strcmp(argv[0], GPU_PROBE_ARGV0) == 0 &&
           getsockopt(PROBE_SOCKET, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
           type == SOCK_SEQPACKET;
}

void gpu_probe_main_if_asked(int argc, char **argv)
{
    char request;

    if (!is_gpu_probe(argc, argv))
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, GPU_PROBE_ARGV0);
    fd_close_from(PROBE_SOCKET + 1);
    if (nvml_open(&probe.nvml))
        find_worker_gpus((uint32_t)strtoul(argv[1], NULL, 10));
    else
        _exit(EXIT_SUCCESS);
    if (probe.count == 0) {
        send_health_of_all(); /* reports that there is no GPU */
        _exit(EXIT_SUCCESS);
    }
    start_xid_thread();
    do
        send_health_of_all();
    while (recv(PROBE_SOCKET, &request, sizeof(request), 0) > 0);
    _exit(EXIT_SUCCESS);
}
