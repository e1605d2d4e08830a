/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/log.h"

/* TCP addresses and sockets. Every descriptor from here is non-blocking and
 * close-on-exec. */
struct net_addr {
    struct sockaddr_storage sa;
    socklen_t len;
};

#define NET_TEXT_SIZE 80 /* "[ipv6%scope]:port" */

/*
 * Split "HOST", "HOST:PORT", "[V6]:PORT" or ":PORT". HOST may be empty (then host is
 * ""). If the text has no port, *port is default_port; a default of -1 means that a
 * port must be given. With a default, digits alone are a port without HOST.
 */
int net_split(const char *text, int default_port, char *host, size_t host_size,
              uint16_t *port, struct err *e) MUST_CHECK;

/* Digits alone. */
bool net_is_port(const char *text);

/* "NUMBER:PORT" as net_format prints it: never asks for a name. */
int net_parse(const char *text, struct net_addr *addr, struct err *e) MUST_CHECK;

/* The same without the port, which is given. */
int net_parse_host(const char *host, uint16_t port, struct net_addr *addr,
                   struct err *e) MUST_CHECK;

/* All addresses of a name or a number. Blocks, but not for a number. */
int net_resolve(const char *host, uint16_t port, struct net_addr *list, size_t max,
                size_t *count, struct err *e) MUST_CHECK;

/* A socket that listens on addr, or -1.
 * The error names the process that has the port, if /proc shows it. */
int net_listen(const struct net_addr *addr, int backlog, struct err *e) MUST_CHECK;

/* The same on all addresses of this machine, of IPv6 and IPv4; port 0: any. */
int net_listen_everywhere(uint16_t port, int backlog, struct err *e) MUST_CHECK;

/* A socket, or -1, that holds a free port of this machine for a program that will ask
 * for it by number, with SO_REUSEADDR as servers do: the system gives it to no other
 * program that asks for any port. It does not listen: until then clients are refused.
 */
int net_hold_port(uint16_t *port);

/* A socket that is connecting to addr (EINPROGRESS), or -1. */
int net_connect(const struct net_addr *addr, struct err *e) MUST_CHECK;

/* accept4; -1 with errno. TCP_NODELAY is set. */
int net_accept(int listener, struct net_addr *peer);

int net_local_addr(int fd, struct net_addr *addr);
int net_peer_addr(int fd, struct net_addr *addr);
uint16_t net_port(const struct net_addr *addr);
void net_set_port(struct net_addr *addr, uint16_t port);
/* The host alone, "10.0.0.1" or "fe80::1%eth0"; v4-mapped v6 shows as v4.
 * Returns buf. */
char *net_format_host(const struct net_addr *addr, char *buf, size_t size);
/* Host and port, "10.0.0.1:29500" or "[::1]:29500". Returns buf. */
char *net_format(const struct net_addr *addr, char *buf, size_t size);

bool net_is_loopback(const struct net_addr *addr);
/* Same host, ports apart; v4-mapped v6 equals v4. */
bool net_same_host(const struct net_addr *a, const struct net_addr *b);
/* The same of these addresses, in whatever order they are; NULL: there are none. */
const struct net_addr *net_lowest(const struct net_addr *list, size_t count);
/* The interface of this machine that has the address, or "". Returns name. */
#define NET_INTERFACE_SIZE 16
char *net_interface(const struct net_addr *addr, char name[NET_INTERFACE_SIZE]);
/* Whether an interface of this machine has the address. */
bool net_is_local(const struct net_addr *addr);
/* The addresses of this machine, "10.0.0.1, 192.168.1.5, fd00::1": neither loopback nor
 * link-local ones. Returns buf. */
char *net_list_own(char *buf, size_t size);
/* A number that is the same for the same host, ports apart. */
uint64_t net_hash_host(const struct net_addr *addr);
/* The same for what one owner of addresses can connect from: a host, or with IPv6 a
 * network of 64 bits. Without the key no peer can choose it. */
uint64_t net_hash_source(const struct net_addr *addr, const uint64_t key[2]);

/* A line about a peer that begins with its address; one line a second for each host. */
void net_log_peer(struct log_limit *limit, enum log_level level,
                  const struct net_addr *peer, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
