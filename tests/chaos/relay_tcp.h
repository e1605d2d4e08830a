/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the relay knows of TCP: whose a frame is, and how to end a connection. */
struct relay_segment {
    const uint8_t *eth, *ip, *tcp;
    uint32_t payload;
    bool syn, established; /* established: it acknowledges, and is no reset */
};

/* False: no TCP over IPv4, or cut short. */
bool relay_parse(const uint8_t *eth, size_t size, struct relay_segment *seg);
bool relay_is_of(const struct relay_segment *seg, unsigned tcp_port);

#define RELAY_RESET_SIZE (10 + 14 + 20 + 20)
/* A reset with the kernel's header in front, to the frame's receiver or its sender. */
void relay_make_reset(const struct relay_segment *seg, bool to_receiver,
                      uint8_t frame[RELAY_RESET_SIZE]);

#define RELAY_FLOWS_MAX 256
struct relay_flows {
    unsigned tcp_port; /* 0: nothing is forgotten */
    unsigned count;
    uint8_t known[RELAY_FLOWS_MAX][12]; /* begun since */
};

/* From now on only connections that begin are known at this port. 0: all are. */
void relay_flows_forget(struct relay_flows *f, unsigned tcp_port);
/* Whether the frame belongs to a connection that is forgotten. */
bool relay_flow_lost(struct relay_flows *f, const struct relay_segment *seg);
