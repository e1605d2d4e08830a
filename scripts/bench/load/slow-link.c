/* SPDX-License-Identifier: MIT */
/*
 * A slow link between two network namespaces: packets arrive at the other end DELAY_US
 * microseconds later, at most MB_PER_S megabytes a second in each direction.
 *
 *   slow-link NAMESPACE NAMESPACE DELAY_US MB_PER_S
 *
 * Makes an interface "link0" in each, to which the caller gives an address, prints
 * "ready" and works until its standard input ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define PACKET_MAX 65536
#define QUEUED_MAX 2048 /* packets in one direction; then senders must wait */

struct packet {
    uint64_t due_ns;
    size_t size;
    char bytes[PACKET_MAX];
};

struct way {
    int from, to;
    struct packet *packet; /* a ring */
    unsigned first, count;
    uint64_t free_ns; /* when the link has sent all packets so far */
};

static double delay_ns, ns_per_byte;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "slow-link: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* A real link needs no core, so this thread gets a core at once, if the system permits
 * it. */
static void come_first(void)
{
    const struct sched_param p = { .sched_priority = 10 };

    if (sched_setscheduler(0, SCHED_FIFO, &p) < 0 && nice(-20) == -1)
        return;
}

/* This process stays in that namespace, which does no harm. */
static int open_end(const char *namespace)
{
    struct ifreq r = { .ifr_flags = IFF_TUN | IFF_NO_PI };
    char path[256];
    int ns, fd;

    snprintf(path, sizeof(path), "/run/netns/%s", namespace);
    snprintf(r.ifr_name, sizeof(r.ifr_name), "link0");
    ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0 || setns(ns, CLONE_NEWNET) < 0)
        die(path);
    close(ns);
    fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &r) < 0)
        die("/dev/net/tun");
    return fd;
}

static void take(struct way *w)
{
    while (w->count < QUEUED_MAX) {
        struct packet *p = &w->packet[(w->first + w->count) % QUEUED_MAX];
        ssize_t n = read(w->from, p->bytes, PACKET_MAX);
        uint64_t now = now_ns();

        if (n <= 0)
            return;
        p->size = (size_t)n;
        if (w->free_ns < now)
            w->free_ns = now;
        w->free_ns += (uint64_t)((double)n * ns_per_byte);
        p->due_ns = w->free_ns + (uint64_t)delay_ns;
        w->count++;
    }
}

/* Returns when the next packet is due; UINT64_MAX: there is none. */
static uint64_t give(struct way *w)
{
    while (w->count > 0) {
        struct packet *p = &w->packet[w->first];

        if (p->due_ns > now_ns())
            return p->due_ns;
        if (write(w->to, p->bytes, p->size) < 0 && errno != EIO && errno != EAGAIN)
            die("write");
        w->first = (w->first + 1) % QUEUED_MAX;
        w->count--;
    }
    return UINT64_MAX;
}

static void wait_for(struct way *way, uint64_t due)
{
    struct pollfd p[3] = { { .fd = STDIN_FILENO, .events = POLLIN } };
    uint64_t now = now_ns(), left = due > now ? due - now : 0;
    struct timespec t = { (time_t)(left / 1000000000), (long)(left % 1000000000) };

    for (unsigned i = 0; i < 2; i++)
        p[i + 1] = (struct pollfd){ .fd = way[i].count < QUEUED_MAX ? way[i].from : -1,
                                    .events = POLLIN };
    if (ppoll(p, 3, due == UINT64_MAX ? NULL : &t, NULL) < 0 && errno != EINTR)
        die("poll");
    if (p[0].revents)
        exit(0);
}

int main(int argc, char **argv)
{
    struct way way[2] = { { 0 } };

    if (argc != 5 || atof(argv[4]) <= 0) {
        fputs("usage: slow-link NAMESPACE NAMESPACE DELAY_US MB_PER_S\n", stderr);
        return 2;
    }
    come_first();
    delay_ns = atof(argv[3]) * 1000;
    ns_per_byte = 1000 / atof(argv[4]);
    way[0].from = way[1].to = open_end(argv[1]);
    way[1].from = way[0].to = open_end(argv[2]);
    for (unsigned i = 0; i < 2; i++)
        way[i].packet = malloc(QUEUED_MAX * sizeof(*way[i].packet));
    if (!way[0].packet || !way[1].packet)
        die("memory");
    puts("ready");
    fflush(stdout);
    for (;;) {
        uint64_t due = UINT64_MAX;

        for (unsigned i = 0; i < 2; i++) {
            uint64_t next;

            take(&way[i]);
            next = give(&way[i]);
            due = next < due ? next : due;
        }
        wait_for(way, due);
    }
}
