/* SPDX-License-Identifier: MIT */
#pragma once

#include <poll.h>
#include <stddef.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/tcpstore/store_server.h"

/* A store's thread, and clients on real sockets, which say and hear bytes. */
#define PATIENCE_MS 60000
#define N(byte) byte "\0\0\0\0\0\0\0"
#define HELLO "\x00\xce\xf7\x85\x3c"
#define PING                                                                           \
    "\x0d"                                                                             \
    "1234"
#define SET_K "\x01" N("\x01") "k" N("\x01") "v"
#define GET_K "\x03" N("\x01") "k"
#define WAIT_K "\x06" N("\x01") N("\x01") "k"
#define SAY(fd, literal) say_bytes(fd, literal, sizeof(literal) - 1)
#define HEAR(fd, literal) hear_bytes(fd, literal, sizeof(literal) - 1)

extern struct store_server *server;

void start_server(struct store_server_config config);
void start_plain_server(void);
void stop_server(void);
struct net_addr loopback(void);

/* What it has logged. */
unsigned lines_seen(void);
void expect_line(const char *part);

/* A blocking socket with a deadline. */
int dial_store(int receive_buffer);
int connect_client(void);
void say_bytes(int fd, const void *data, size_t size);
void hear_bytes(int fd, const void *data, size_t size);
void expect_silence(int fd);
void expect_closed(int fd);

/* Wait until a number of the statistics is as it should be. */
#define EXPECT_STAT(field, value)                                                      \
    do {                                                                               \
        uint64_t until_ = clock_ms() + PATIENCE_MS;                                    \
        while (store_server_stats(server).field != (value) && clock_ms() < until_)     \
            poll(NULL, 0, 1);                                                          \
        ck_assert_uint_eq(store_server_stats(server).field, (value));                  \
    } while (0)
