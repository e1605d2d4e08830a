/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/hash.h"
#include "rendezvous/common/base/keyed_hash.h"
#include "rendezvous/common/base/port_owner.h"

#define ADDRESSES_SHOWN_SIZE 200

/* An address without its port, in a form to compare: v4-mapped v6 is v4. */
struct net_host {
    int family;
    size_t size;
    uint8_t byte[16];
    uint32_t scope;
};

static const struct sockaddr_in *addr_as_v4(const struct net_addr *addr)
{
    return (const struct sockaddr_in *)(const void *)&addr->sa;
}

static const struct sockaddr_in6 *addr_as_v6(const struct net_addr *addr)
{
    return (const struct sockaddr_in6 *)(const void *)&addr->sa;
}

static const struct sockaddr *addr_as_sockaddr(const struct net_addr *addr)
{
    return (const struct sockaddr *)(const void *)&addr->sa;
}

static struct net_host net_host_of(const struct net_addr *addr)
{
    struct net_host h = { .family = addr->sa.ss_family };

    if (h.family == AF_INET) {
        h.size = 4;
        memcpy(h.byte, &addr_as_v4(addr)->sin_addr, 4);
    } else if (h.family == AF_INET6 &&
               IN6_IS_ADDR_V4MAPPED(&addr_as_v6(addr)->sin6_addr)) {
        h.family = AF_INET;
        h.size = 4;
        memcpy(h.byte, addr_as_v6(addr)->sin6_addr.s6_addr + 12, 4);
    } else if (h.family == AF_INET6) {
        h.size = 16;
        memcpy(h.byte, &addr_as_v6(addr)->sin6_addr, 16);
        h.scope = addr_as_v6(addr)->sin6_scope_id;
    }
    return h;
}

static bool is_v6_number(const char *text)
{
    char number[NET_TEXT_SIZE];
    struct in6_addr v6;
    size_t length = strcspn(text, "%"); /* the scope is an interface's name */

    if (length >= sizeof(number))
        return false;
    memcpy(number, text, length);
    number[length] = '\0';
    return inet_pton(AF_INET6, number, &v6) == 1;
}

static int parse_port(const char *text, const char *digits, uint16_t *port,
                      struct err *e)
{
    unsigned long value = 0;
    size_t n = strspn(digits, "0123456789");

    if (n > 0 && n <= 5)
        value = strtoul(digits, NULL, 10);
    if (n == 0 || n > 5 || digits[n] != '\0' || value > UINT16_MAX)
        return err_set(e, "\"%s\": \"%s\" is not a port from 0 to 65535", text, digits);
    *port = (uint16_t)value;
    return 0;
}

static int copy_host(const char *text, const char *start, size_t length, char *host,
                     size_t host_size, struct err *e)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)start[i] <= ' ' || strchr("[]/\x7f", start[i]))
            return err_set(e, "\"%s\" is not HOST:PORT", text);
    if (length >= host_size)
        return err_set(e, "\"%.40s...\": the host is longer than %zu bytes", text,
                       host_size - 1);
    memcpy(host, start, length);
    host[length] = '\0';
    return 0;
}

/* "[V6]" or "[V6]:PORT" */
static int split_bracketed(const char *text, char *host, size_t host_size,
                           const char **port_digits, struct err *e)
{
    const char *close = strchr(text, ']');

    if (!close || (close[1] != '\0' && close[1] != ':'))
        return err_set(e, "\"%s\" is not [IPV6]:PORT", text);
    *port_digits = close[1] == ':' ? close + 2 : NULL;
    if (copy_host(text, text + 1, (size_t)(close - text - 1), host, host_size, e) < 0)
        return -1;
    if (!is_v6_number(host))
        return err_set(e, "\"%s\": \"%s\" is not an IPv6 address", text, host);
    return 0;
}

/* "HOST", "HOST:PORT", ":PORT", and a bare IPv6 number, which has no port */
static int split_plain(const char *text, char *host, size_t host_size,
                       const char **port_digits, struct err *e)
{
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);

    *port_digits = colon ? colon + 1 : NULL;
    if (colon && strchr(colon + 1, ':')) {
        if (!is_v6_number(text))
            return err_set(e, "\"%s\" is not HOST:PORT (IPv6 is [ADDRESS]:PORT)", text);
        length = strlen(text);
        *port_digits = NULL;
    }
    return copy_host(text, text, length, host, host_size, e);
}

bool net_is_port(const char *text)
{
    return *text && text[strspn(text, "0123456789")] == '\0';
}

int net_split(const char *text, int default_port, char *host, size_t host_size,
              uint16_t *port, struct err *e)
{
    const char *digits = NULL;
    int rc;

    if (*text == '\0')
        return err_set(e, "\"\" is not HOST:PORT");
    if (strstr(text, "://"))
        return err_set(e, "\"%s\" is a URL and not an address (HOST:PORT)", text);
    if (default_port >= 0 &&
        net_is_port(text)) { /* for the resolver it is an IPv4 number, 0.0.x.y */
        *host = '\0';
        return parse_port(text, text, port, e);
    }
    rc = *text == '[' ? split_bracketed(text, host, host_size, &digits, e)
                      : split_plain(text, host, host_size, &digits, e);
    if (rc < 0)
        return -1;
    if (digits)
        return parse_port(text, digits, port, e);
    if (default_port < 0)
        return err_set(e, "\"%s\" has no port (HOST:PORT)", text);
    *port = (uint16_t)default_port;
    return 0;
}

static bool family_is_supported(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* No host: every address of this machine. The socket for v6 takes v4 too, so it comes
 * first. */
static size_t list_any_addresses(uint16_t port, struct net_addr *list, size_t max)
{
    size_t n = 0;

    memset(list, 0, max * sizeof(*list));
    if (n < max && family_is_supported(AF_INET6)) {
        list[n].sa.ss_family = AF_INET6;
        list[n++].len = sizeof(struct sockaddr_in6);
    }
    if (n < max) {
        list[n].sa.ss_family = AF_INET;
        list[n++].len = sizeof(struct sockaddr_in);
    }
    for (size_t i = 0; i < n; i++)
        net_set_port(&list[i], port);
    return n;
}

static int lookup_host(const char *host, int flags, struct addrinfo **found)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC,
                              .ai_socktype = SOCK_STREAM,
                              .ai_flags = flags };

    return getaddrinfo(host, NULL, &hints, found);
}

static bool copy_inet_address(const struct addrinfo *a, uint16_t port,
                              struct net_addr *addr)
{
    if (a->ai_family != AF_INET && a->ai_family != AF_INET6)
        return false;
    memset(addr, 0, sizeof(*addr));
    memcpy(&addr->sa, a->ai_addr, a->ai_addrlen);
    addr->len = a->ai_addrlen;
    net_set_port(addr, port);
    return true;
}

int net_parse_host(const char *host, uint16_t port, struct net_addr *addr,
                   struct err *e)
{
    struct addrinfo *found = NULL;
    bool good = *host != '\0' && lookup_host(host, AI_NUMERICHOST, &found) == 0 &&
                copy_inet_address(found, port, addr);

    if (found)
        freeaddrinfo(found);
    return good ? 0 : err_set(e, "\"%s\" is not an address", host);
}

int net_parse(const char *text, struct net_addr *addr, struct err *e)
{
    char host[NET_TEXT_SIZE];
    uint16_t port;

    if (net_split(text, -1, host, sizeof(host), &port, e) < 0)
        return -1;
    if (port == 0 || net_parse_host(host, port, addr, e) < 0)
        return err_set(e, "\"%s\" is not an address and a port", text);
    return 0;
}

int net_resolve(const char *host, uint16_t port, struct net_addr *list, size_t max,
                size_t *count, struct err *e)
{
    struct addrinfo *found = NULL;
    int rc;

    if (*host == '\0') {
        *count = list_any_addresses(port, list, max);
        return 0;
    }
    rc = lookup_host(host, AI_NUMERICHOST, &found);
    if (rc == EAI_NONAME)
        rc = lookup_host(host, 0, &found);
    if (rc != 0)
        return err_set(e, "cannot find host \"%s\": %s", host,
                       rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    *count = 0;
    for (struct addrinfo *a = found; a && *count < max; a = a->ai_next)
        if (copy_inet_address(a, port, &list[*count]))
            ++*count;
    freeaddrinfo(found);
    if (*count == 0)
        return err_set(e, "host \"%s\" has no IP address", host);
    return 0;
}

static struct net_addr addr_from_sockaddr(const struct sockaddr *sa)
{
    struct net_addr addr = { .len = sa->sa_family == AF_INET6
                                        ? sizeof(struct sockaddr_in6)
                                        : sizeof(struct sockaddr_in) };

    memcpy(&addr.sa, sa, addr.len);
    return addr;
}

static bool ifaddr_is_inet(const struct ifaddrs *i)
{
    return i->ifa_addr &&
           (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6);
}

char *net_list_own(char *text, size_t size)
{
    struct ifaddrs *all = NULL;
    char one[NET_TEXT_SIZE];
    size_t used = 0;

    snprintf(text, size, "only loopback");
    if (getifaddrs(&all) < 0)
        return text;
    for (struct ifaddrs *i = all; i && used + NET_TEXT_SIZE < size; i = i->ifa_next) {
        struct net_addr addr;

        if (!ifaddr_is_inet(i))
            continue;
        addr = addr_from_sockaddr(i->ifa_addr);
        if (net_is_loopback(&addr) || net_host_of(&addr).scope != 0)
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                 net_format_host(&addr, one, sizeof(one)));
    }
    freeifaddrs(all);
    return text;
}

static int explain_listen_error(const struct net_addr *addr, int errnum, struct err *e)
{
    char text[NET_TEXT_SIZE], more[ADDRESSES_SHOWN_SIZE];

    if (errnum == EADDRINUSE && port_owner_find(net_port(addr), more, sizeof(more)))
        return err_set(e, "port %u is in use by %s", net_port(addr), more);
    if (errnum == EADDRINUSE)
        return err_set(e, "port %u is in use", net_port(addr));
    if (errnum == EADDRNOTAVAIL) {
        net_list_own(more, sizeof(more));
        return err_set(e, "%s is not an address of this machine; it has %s",
                       net_format_host(addr, text, sizeof(text)), more);
    }
    return err_set_errno(e, errnum, "cannot listen on %s",
                         net_format(addr, text, sizeof(text)));
}

static void set_socket_flag(int fd, int level, int option, int value)
{
    /* none of the options set here can fail on a fresh TCP socket */
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

static int open_socket(const struct net_addr *addr)
{
    return socket(addr->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* -1 with errno. */
static int open_bound(const struct net_addr *addr)
{
    int fd = open_socket(addr), errnum;

    if (fd < 0)
        return -1;
    /* or a restarted daemon would have to wait for its old connections to expire */
    set_socket_flag(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (addr->sa.ss_family == AF_INET6)
        set_socket_flag(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (bind(fd, addr_as_sockaddr(addr), addr->len) == 0)
        return fd;
    errnum = errno;
    close(fd);
    errno = errnum;
    return -1;
}

int net_listen(const struct net_addr *addr, int backlog, struct err *e)
{
    int fd = open_bound(addr), errnum;

    if (fd >= 0 && listen(fd, backlog) == 0)
        return fd;
    errnum = errno;
    if (fd >= 0)
        close(fd);
    return explain_listen_error(addr, errnum, e);
}

int net_hold_port(uint16_t *port)
{
    struct net_addr any[2], own;
    struct err e;
    size_t count = 0;
    int fd = -1;

    if (net_resolve("", 0, any, 2, &count, &e) < 0)
        return -1;
    for (size_t i = 0; i < count && fd < 0; i++) /* a kernel may have no IPv6 */
        fd = open_bound(&any[i]);
    if (fd >= 0 && net_local_addr(fd, &own) == 0)
        *port = net_port(&own);
    return fd;
}

int net_listen_everywhere(uint16_t port, int backlog, struct err *e)
{
    struct net_addr any[2];
    size_t count;
    int fd = -1;

    if (net_resolve("", port, any, 2, &count, e) < 0)
        return -1;
    for (size_t i = 0; i < count && fd < 0; i++) /* a kernel may have no IPv6 */
        fd = net_listen(&any[i], backlog, e);
    return fd;
}

int net_connect(const struct net_addr *addr, struct err *e)
{
    int fd = open_socket(addr), errnum;

    if (fd >= 0) {
        set_socket_flag(fd, IPPROTO_TCP, TCP_NODELAY, 1);
        if (connect(fd, addr_as_sockaddr(addr), addr->len) == 0 || errno == EINPROGRESS)
            return fd;
    }
    errnum = errno;
    if (fd >= 0)
        close(fd);
    return err_set_errno(e, errnum, "cannot connect");
}

int net_accept(int listener, struct net_addr *peer)
{
    int fd;

    memset(peer, 0, sizeof(*peer));
    do {
        peer->len = sizeof(peer->sa);
        fd = accept4(listener, (struct sockaddr *)(void *)&peer->sa, &peer->len,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    if (fd >= 0)
        set_socket_flag(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    return fd;
}

int net_local_addr(int fd, struct net_addr *addr)
{
    memset(addr, 0, sizeof(*addr));
    addr->len = sizeof(addr->sa);
    return getsockname(fd, (struct sockaddr *)(void *)&addr->sa, &addr->len);
}

int net_peer_addr(int fd, struct net_addr *addr)
{
    memset(addr, 0, sizeof(*addr));
    addr->len = sizeof(addr->sa);
    return getpeername(fd, (struct sockaddr *)(void *)&addr->sa, &addr->len);
}

/* the port is at the same offset in both kinds of address */
_Static_assert(offsetof(struct sockaddr_in, sin_port) ==
                   offsetof(struct sockaddr_in6, sin6_port),
               "sin_port and sin6_port");

uint16_t net_port(const struct net_addr *addr)
{
    return ntohs(addr_as_v4(addr)->sin_port);
}

void net_set_port(struct net_addr *addr, uint16_t port)
{
    ((struct sockaddr_in *)(void *)&addr->sa)->sin_port = htons(port);
}

char *net_format_host(const struct net_addr *addr, char *buf, size_t size)
{
    char number[INET6_ADDRSTRLEN] = "?", interface[IF_NAMESIZE];
    struct net_host h = net_host_of(addr);

    if (h.size > 0)
        inet_ntop(h.family, h.byte, number, sizeof(number));
    if (h.scope == 0)
        snprintf(buf, size, "%s", number);
    else if (if_indextoname(h.scope, interface))
        snprintf(buf, size, "%s%%%s", number, interface);
    else
        snprintf(buf, size, "%s%%%u", number, h.scope);
    return buf;
}

char *net_format(const struct net_addr *addr, char *buf, size_t size)
{
    char host[NET_TEXT_SIZE];

    net_format_host(addr, host, sizeof(host));
    snprintf(buf, size, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, net_port(addr));
    return buf;
}

bool net_is_loopback(const struct net_addr *addr)
{
    struct net_host h = net_host_of(addr);

    if (h.family == AF_INET)
        return h.byte[0] == 127;
    return h.family == AF_INET6 &&
           memcmp(h.byte, &in6addr_loopback, sizeof(in6addr_loopback)) == 0;
}

bool net_same_host(const struct net_addr *a, const struct net_addr *b)
{
    struct net_host x = net_host_of(a), y = net_host_of(b);

    /* a link-local address may come without its interface */
    return x.size > 0 && x.family == y.family &&
           memcmp(x.byte, y.byte, sizeof(x.byte)) == 0 &&
           (x.scope == y.scope || x.scope == 0 || y.scope == 0);
}

const struct net_addr *net_lowest(const struct net_addr *list, size_t count)
{
    const struct net_addr *lowest = NULL;
    struct net_host least = { .size = 0 };

    for (size_t i = 0; i < count; i++) {
        struct net_host h = net_host_of(&list[i]);

        if (!lowest || h.size < least.size ||
            (h.size == least.size && memcmp(h.byte, least.byte, h.size) < 0)) {
            lowest = &list[i];
            least = h;
        }
    }
    return lowest;
}

char *net_interface(const struct net_addr *addr, char name[NET_INTERFACE_SIZE])
{
    struct ifaddrs *all = NULL;

    *name = '\0';
    if (getifaddrs(&all) < 0)
        return name;
    for (struct ifaddrs *i = all; i && !*name; i = i->ifa_next) {
        struct net_addr mine;

        if (!ifaddr_is_inet(i))
            continue;
        mine = addr_from_sockaddr(i->ifa_addr);
        if (net_same_host(addr, &mine))
            snprintf(name, NET_INTERFACE_SIZE, "%s", i->ifa_name);
    }
    freeifaddrs(all);
    return name;
}

bool net_is_local(const struct net_addr *addr)
{
    char name[NET_INTERFACE_SIZE];

    /* all of 127/8 is loopback, but only one address of it is listed */
    return net_is_loopback(addr) || *net_interface(addr, name);
}

/* Without the scope, because net_same_host may ignore it. */
uint64_t net_hash_host(const struct net_addr *addr)
{
    struct net_host h = net_host_of(addr);

    return hash_fnv1a(HASH_FNV1A_BASIS, h.byte, h.size);
}

uint64_t net_hash_source(const struct net_addr *addr, const uint64_t key[2])
{
    struct net_host h = net_host_of(addr);

    if (h.family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&addr_as_v6(addr)->sin6_addr))
        h.size = 8;
    return keyed_hash(key, h.byte, h.size);
}

void net_log_peer(struct log_limit *limit, enum log_level level,
                  const struct net_addr *peer, const char *fmt, ...)
{
    char from[NET_TEXT_SIZE], text[1024];
    unsigned held_back;
    va_list args;

    if (!log_limit_pass(limit, net_hash_host(peer), clock_ms(), &held_back))
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    net_format(peer, from, sizeof(from));
    if (held_back)
        log_at(level, "%s: %s (%u more lines about it held back)", from, text,
               held_back);
    else
        log_at(level, "%s: %s", from, text);
}
