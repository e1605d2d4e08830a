/* SPDX-License-Identifier: MIT */
#include "tests/chaos/relay_tcp.h"

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <string.h>

enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };
enum { TCP_SEQ = 4, TCP_ACK = 8, TCP_OFFSET = 12, TCP_FLAGS = 13, TCP_SUM = 16 };
enum { IP_SIZE = 20, TCP_SIZE = 20 };

static unsigned load16(const uint8_t *p)
{
    return (unsigned)p[0] << 8 | p[1];
}

static uint32_t load32(const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof(v));
    return ntohl(v);
}

static void store16(uint8_t *p, unsigned v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static void store32(uint8_t *p, uint32_t v)
{
    v = htonl(v);
    memcpy(p, &v, sizeof(v));
}

bool relay_parse(const uint8_t *eth, size_t size, struct relay_segment *seg)
{
    const uint8_t *ip = eth + ETH_HLEN, *tcp;
    size_t header;

    if (size < ETH_HLEN + IP_SIZE + TCP_SIZE || load16(eth + 12) != ETHERTYPE_IP ||
        ip[0] >> 4 != 4 || ip[9] != IPPROTO_TCP)
        return false;
    header = (ip[0] & 15u) * 4u;
    tcp = ip + header;
    if (size < ETH_HLEN + header + TCP_SIZE)
        return false;
    header += (tcp[TCP_OFFSET] >> 4) * 4u;
    *seg = (struct relay_segment){
        .eth = eth,
        .ip = ip,
        .tcp = tcp,
        .payload = (uint32_t)(size - ETH_HLEN - header),
        .syn = tcp[TCP_FLAGS] & SYN,
        .established = (tcp[TCP_FLAGS] & (SYN | RST | ACK)) == ACK,
    };
    return size >= ETH_HLEN + header;
}

bool relay_is_of(const struct relay_segment *seg, unsigned tcp_port)
{
    return load16(seg->tcp) == tcp_port || load16(seg->tcp + 2) == tcp_port;
}

/* -- resets ----------------------------------------------------------------- */

static uint32_t sum(const uint8_t *p, size_t size, uint32_t start)
{
    for (size_t i = 0; i + 1 < size; i += 2)
        start += load16(p + i);
    return start;
}

static unsigned fold(uint32_t s)
{
    while (s >> 16)
        s = (s & 0xffff) + (s >> 16);
    return ~s & 0xffff;
}

static void address(const struct relay_segment *seg, bool swap, uint8_t *eth,
                    uint8_t *ip, uint8_t *tcp)
{
    memcpy(eth, seg->eth + (swap ? 6 : 0), 6);
    memcpy(eth + 6, seg->eth + (swap ? 0 : 6), 6);
    store16(eth + 12, ETHERTYPE_IP);
    memcpy(ip + 12, seg->ip + (swap ? 16 : 12), 4);
    memcpy(ip + 16, seg->ip + (swap ? 12 : 16), 4);
    memcpy(tcp, seg->tcp + (swap ? 2 : 0), 2);
    memcpy(tcp + 2, seg->tcp + (swap ? 0 : 2), 2);
}

void relay_make_reset(const struct relay_segment *seg, bool to_receiver,
                      uint8_t frame[RELAY_RESET_SIZE])
{
    uint8_t *eth = frame + 10, *ip = eth + ETH_HLEN, *tcp = ip + IP_SIZE;

    memset(frame, 0, RELAY_RESET_SIZE);
    address(seg, !to_receiver, eth, ip, tcp);
    ip[0] = 0x45;
    store16(ip + 2, IP_SIZE + TCP_SIZE);
    ip[8] = 64;
    ip[9] = IPPROTO_TCP;
    store16(ip + 10, fold(sum(ip, IP_SIZE, 0)));
    /* the receiver waits for what follows this frame, or for this very frame, which it
     * does not get; the sender for what it has acknowledged */
    store32(tcp + TCP_SEQ,
            to_receiver ? load32(seg->tcp + TCP_SEQ) : load32(seg->tcp + TCP_ACK));
    store32(tcp + TCP_ACK, to_receiver ? load32(seg->tcp + TCP_ACK)
                                       : load32(seg->tcp + TCP_SEQ) + seg->payload);
    tcp[TCP_OFFSET] = (TCP_SIZE / 4) << 4;
    tcp[TCP_FLAGS] = RST | ACK;
    store16(tcp + TCP_SUM,
            fold(sum(tcp, TCP_SIZE, sum(ip + 12, 8, IPPROTO_TCP + TCP_SIZE))));
}

/* -- connections that are known --------------------------------------------- */

void relay_flows_forget(struct relay_flows *f, unsigned tcp_port)
{
    f->tcp_port = tcp_port;
    f->count = 0;
}

/* The same for both directions: the side that has the known port comes second. */
static void name_flow(const struct relay_segment *seg, unsigned tcp_port,
                      uint8_t name[12])
{
    bool swap = load16(seg->tcp) == tcp_port;

    memcpy(name, seg->ip + (swap ? 16 : 12), 4);
    memcpy(name + 4, seg->ip + (swap ? 12 : 16), 4);
    memcpy(name + 8, seg->tcp + (swap ? 2 : 0), 2);
    memcpy(name + 10, seg->tcp + (swap ? 0 : 2), 2);
}

bool relay_flow_lost(struct relay_flows *f, const struct relay_segment *seg)
{
    uint8_t name[12];

    if (!f->tcp_port || !relay_is_of(seg, f->tcp_port))
        return false;
    name_flow(seg, f->tcp_port, name);
    for (unsigned i = 0; i < f->count; i++)
        if (memcmp(f->known[i], name, sizeof(name)) == 0)
            return false;
    if (!seg->syn)
        return true;
    if (f->count < RELAY_FLOWS_MAX)
        memcpy(f->known[f->count++], name, sizeof(name));
    return false;
}
