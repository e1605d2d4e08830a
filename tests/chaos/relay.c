/* SPDX-License-Identifier: MIT */
/*
 * A switch of Ethernet frames that can be made bad: it loses, delays, repeats and swaps
 * frames, has slow ports and ports that hear and do not speak, ends TCP connections
 * with resets of its own, and forgets connections as a firewall does that was
 * restarted. What it does is drawn from a seed, and it takes orders on standard input,
 * a line each:
 *
 *   chaos-relay SEED INTERFACE...
 *   set PORT out|in|both [loss=PERCENT] [dup=PERCENT] [swap=PERCENT] [delay=MS]
 *       [jitter=MS] [rate=BYTES_PER_S]        what is not named is well again
 *   reset PORT COUNT [TCP_PORT]               of connections; 0: those of any port
 *   forget PORT TCP_PORT                      connections there are now lose all frames
 *
 * PORT is the index of an interface, "out" what its host sends. Offloaded checksums and
 * long segments pass as they are, with the header in which the kernel describes them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "tests/chaos/relay_tcp.h"

#define PORTS_MAX 32
#define FRAME_MAX (65536 + 256)
#define HELD_MAX (64u << 20)
#define QUEUE_MS 2000 /* a slow port holds so much, and loses the rest */
#define SWAP_US 20000

enum { OUT, IN, DIRECTIONS };

struct fate { /* of frames in one direction */
    unsigned loss, dup, swap;
    unsigned delay_ms, jitter_ms, rate;
    uint64_t free_at; /* when a slow port has sent what it holds */
};

struct port {
    int fd;
    struct fate fate[DIRECTIONS];
    unsigned resets, reset_port;
    struct relay_flows flows;
};

struct held {
    struct held *next;
    uint64_t due;
    unsigned port;
    size_t size;
    uint8_t frame[];
};

struct station {
    uint8_t mac[ETH_ALEN];
    int port;
};

static struct port ports[PORTS_MAX];
static unsigned port_count;
static struct station stations[256];
static struct held *queue;
static size_t held_bytes;
static uint64_t seed;

static uint64_t draw(void)
{
    uint64_t z = seed += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static bool chance(unsigned percent)
{
    return percent && draw() % 100 < percent;
}

/* -- sending ---------------------------------------------------------------- */

static void emit(unsigned port, const void *frame, size_t size)
{
    /* a full queue of the interface loses the frame, as a switch would */
    if (write(ports[port].fd, frame, size) < 0 && errno == EBADF)
        exit(1);
}

static void hold(uint64_t due, unsigned port, const void *frame, size_t size)
{
    struct held **at = &queue, *h;

    if (held_bytes + size > HELD_MAX)
        return;
    while (*at && (*at)->due <= due)
        at = &(*at)->next;
    h = xmalloc(sizeof(*h) + size);
    *h = (struct held){ .next = *at, .due = due, .port = port, .size = size };
    memcpy(h->frame, frame, size);
    held_bytes += size;
    *at = h;
}

static void release(uint64_t now)
{
    while (queue && queue->due <= now) {
        struct held *h = queue;

        queue = h->next;
        held_bytes -= h->size;
        emit(h->port, h->frame, h->size);
        free(h);
    }
}

/* When the frame is through; 0: never. */
static uint64_t pass(struct fate *f, size_t size, uint64_t at)
{
    if (chance(f->loss))
        return 0;
    if (f->rate) {
        if (f->free_at < at)
            f->free_at = at;
        if (f->free_at > at + QUEUE_MS * 1000ull)
            return 0;
        f->free_at += size * 1000000ull / f->rate;
        at = f->free_at;
    }
    at += f->delay_ms * 1000ull;
    if (f->jitter_ms)
        at += draw() % (f->jitter_ms * 1000ull);
    return chance(f->swap) ? at + SWAP_US : at;
}

static void forward(unsigned from, unsigned to, const void *frame, size_t size)
{
    struct fate *out = &ports[from].fate[OUT], *in = &ports[to].fate[IN];
    unsigned copies = 1 + chance(out->dup) + chance(in->dup);
    uint64_t now = clock_us();

    while (copies-- > 0) {
        uint64_t due = pass(out, size, now);

        due = due ? pass(in, size, due) : 0;
        if (due > now || (due && queue))
            hold(due, to, frame, size);
        else if (due)
            emit(to, frame, size);
    }
}

/* -- where to --------------------------------------------------------------- */

static struct station *station_of(const uint8_t *mac)
{
    struct station *s = &stations[(mac[3] ^ mac[4] * 31u ^ mac[5]) % 256];

    return memcmp(s->mac, mac, ETH_ALEN) == 0 ? s : NULL;
}

static void learn(const uint8_t *mac, unsigned port)
{
    struct station *s = &stations[(mac[3] ^ mac[4] * 31u ^ mac[5]) % 256];

    memcpy(s->mac, mac, ETH_ALEN);
    s->port = (int)port;
}

static void deliver(unsigned from, const uint8_t *frame, size_t size,
                    const uint8_t *eth)
{
    const struct station *s = eth[0] & 1 ? NULL : station_of(eth);

    for (unsigned to = 0; to < port_count; to++)
        if (to != from && (!s || s->port == (int)to))
            forward(from, to, frame, size);
}

/* Both ends of the connection are told that the other has ended it. */
static bool reset(struct port *p, unsigned from, unsigned to,
                  const struct relay_segment *seg)
{
    uint8_t frame[RELAY_RESET_SIZE];

    if (!p->resets || !seg->established ||
        (p->reset_port && !relay_is_of(seg, p->reset_port)))
        return false;
    p->resets--;
    relay_make_reset(seg, true, frame);
    emit(to, frame, sizeof(frame));
    relay_make_reset(seg, false, frame);
    emit(from, frame, sizeof(frame));
    return true;
}

/* False: it goes no further. */
static bool inspect(unsigned from, const uint8_t *eth, size_t size)
{
    const struct station *s = station_of(eth);
    struct relay_segment seg;

    if (!s || !relay_parse(eth, size, &seg))
        return true;
    for (unsigned i = 0; i < port_count; i++)
        if ((i == from || i == (unsigned)s->port) &&
            (relay_flow_lost(&ports[i].flows, &seg) ||
             reset(&ports[i], from, (unsigned)s->port, &seg)))
            return false;
    return true;
}

static void receive(unsigned from)
{
    static uint8_t frame[FRAME_MAX];
    const size_t header = sizeof(struct virtio_net_hdr);
    ssize_t n;

    for (unsigned share = 0; share < 64; share++) {
        n = read(ports[from].fd, frame, sizeof(frame));
        if (n < (ssize_t)(header + ETH_HLEN))
            return;
        learn(frame + header + ETH_ALEN, from);
        if (inspect(from, frame + header, (size_t)n - header))
            deliver(from, frame, (size_t)n, frame + header);
    }
}

/* -- orders ----------------------------------------------------------------- */

static void set_word(struct fate *f, const char *word)
{
    static const struct {
        const char *name;
        size_t offset;
    } words[] = {
        { "loss", offsetof(struct fate, loss) },
        { "dup", offsetof(struct fate, dup) },
        { "swap", offsetof(struct fate, swap) },
        { "delay", offsetof(struct fate, delay_ms) },
        { "jitter", offsetof(struct fate, jitter_ms) },
        { "rate", offsetof(struct fate, rate) },
    };
    size_t length = strcspn(word, "=");

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strlen(words[i].name) == length &&
            strncmp(words[i].name, word, length) == 0 && word[length])
            *(unsigned *)((char *)f + words[i].offset) = (unsigned)atoi(word + length +
                                                                        1);
}

static void order_set(struct port *p, char *rest)
{
    char *direction = strsep(&rest, " "), *word;
    bool both = direction && strcmp(direction, "both") == 0;
    struct fate f = { 0 };

    while ((word = strsep(&rest, " ")))
        set_word(&f, word);
    if (both || (direction && strcmp(direction, "out") == 0))
        p->fate[OUT] = f;
    if (both || (direction && strcmp(direction, "in") == 0))
        p->fate[IN] = f;
}

static void obey(char *line)
{
    char *verb = strsep(&line, " "), *index = strsep(&line, " ");
    unsigned port = index ? (unsigned)atoi(index) : PORTS_MAX;

    if (port >= port_count || !line)
        return;
    if (strcmp(verb, "set") == 0)
        order_set(&ports[port], line);
    else if (strcmp(verb, "reset") == 0)
        sscanf(line, "%u %u", &ports[port].resets, &ports[port].reset_port);
    else if (strcmp(verb, "forget") == 0)
        relay_flows_forget(&ports[port].flows, (unsigned)atoi(line));
}

/* False at the end of the orders: so ends the relay. */
static bool read_orders(void)
{
    static char text[4096];
    static size_t used;
    ssize_t n = read(STDIN_FILENO, text + used, sizeof(text) - 1 - used);
    char *end;

    if (n <= 0)
        return n < 0 && errno == EINTR;
    used += (size_t)n;
    text[used] = '\0';
    while ((end = strchr(text, '\n'))) {
        *end++ = '\0';
        obey(text);
        used -= (size_t)(end - text);
        memmove(text, end, used + 1);
    }
    return true;
}

/* -- the whole -------------------------------------------------------------- */

static int open_port(const char *interface)
{
    struct sockaddr_ll address = { .sll_family = AF_PACKET,
                                   .sll_protocol = htons(ETH_P_ALL),
                                   .sll_ifindex = (int)if_nametoindex(interface) };
    struct packet_mreq all = { .mr_ifindex = address.sll_ifindex,
                               .mr_type = PACKET_MR_PROMISC };
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;

    if (fd < 0 || !address.sll_ifindex ||
        setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)) < 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one)) < 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof(all)) < 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        perror(interface);
        exit(1);
    }
    return fd;
}

static int wait_ms(void)
{
    uint64_t now = clock_us();

    if (!queue)
        return -1;
    return queue->due <= now ? 0 : (int)((queue->due - now + 999) / 1000);
}

static void run(void)
{
    struct pollfd polled[PORTS_MAX + 1];

    for (unsigned i = 0; i < port_count; i++)
        polled[i] = (struct pollfd){ .fd = ports[i].fd, .events = POLLIN };
    polled[port_count] = (struct pollfd){ .fd = STDIN_FILENO, .events = POLLIN };
    for (;;) {
        if (poll(polled, port_count + 1, wait_ms()) < 0 && errno != EINTR)
            return;
        if (polled[port_count].revents && !read_orders())
            return;
        release(clock_us());
        for (unsigned i = 0; i < port_count; i++)
            if (polled[i].revents)
                receive(i);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc - 2 > PORTS_MAX) {
        fprintf(stderr, "usage: chaos-relay SEED INTERFACE...\n");
        return 2;
    }
    seed = strtoull(argv[1], NULL, 10);
    for (int i = 2; i < argc; i++)
        ports[port_count++].fd = open_port(argv[i]);
    printf("ready\n");
    fflush(stdout);
    run();
    return 0;
}
