/* SPDX-License-Identifier: MIT */
#include "tests/chaos/chain-store.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/wire.h"
#include "rendezvous/tcpstore/tcpstore_scan.h"

#define REQUEST_MAX 1024
#define RETRY_MS 20

static int store = -1;

static bool send_all(const struct wire_out *w)
{
    size_t sent = 0;

    while (!w->bad && sent < w->used) {
        ssize_t n = send(store, w->start + sent, w->used - sent, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR)
            return false;
        sent += n > 0 ? (size_t)n : 0;
    }
    return !w->bad;
}

static bool receive(void *data, size_t size)
{
    for (size_t got = 0; got < size;) {
        ssize_t n = recv(store, (char *)data + got, size - got, 0);

        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        got += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static void put_bytes(struct wire_out *w, const char *text)
{
    wire_put_u64(w, strlen(text));
    wire_put_bytes(w, text, strlen(text));
}

static bool ask(enum tcpstore_op op, bool list, const char *key, const char *value)
{
    uint8_t request[REQUEST_MAX];
    struct wire_out w = { .start = request, .size = sizeof(request) };

    wire_put_u8(&w, (uint8_t)op);
    if (list)
        wire_put_u64(&w, 1);
    put_bytes(&w, key);
    if (value)
        put_bytes(&w, value);
    return send_all(&w);
}

static int try_connect(const char *host, const char *port)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found;
    struct timeval patience = { .tv_sec = 2 };
    int fd = -1, one = 1;

    if (getaddrinfo(host, port, &hints, &found) != 0)
        return -1;
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (connect(fd, found->ai_addr, found->ai_addrlen) < 0) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){ 0 }, sizeof(patience));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

bool chain_store_connect(const char *host, const char *port, unsigned seconds)
{
    uint8_t request[TCPSTORE_HELLO_SIZE];
    struct wire_out w = { .start = request, .size = sizeof(request) };
    uint64_t end = clock_ms() + seconds * 1000ull;

    while ((store = try_connect(host, port)) < 0) {
        if (clock_ms() >= end)
            return false;
        usleep(RETRY_MS * 1000);
    }
    wire_put_u8(&w, TCPSTORE_VALIDATE);
    wire_put_u32(&w, TCPSTORE_MAGIC);
    return send_all(&w);
}

bool chain_store_set(const char *key, const char *value)
{
    return ask(TCPSTORE_SET, false, key, value);
}

bool chain_store_get(const char *key, char *value, size_t size)
{
    uint8_t stopped, header[8];
    struct wire_in r = { .next = header, .left = sizeof(header) };
    uint64_t length;

    if (!ask(TCPSTORE_WAIT, true, key, NULL) || !receive(&stopped, 1) || stopped != 0 ||
        !ask(TCPSTORE_GET, false, key, NULL) || !receive(header, sizeof(header)))
        return false;
    length = wire_get_u64(&r);
    if (length >= size || !receive(value, length))
        return false;
    value[length] = '\0';
    return true;
}

bool chain_store_delete(const char *key)
{
    uint64_t count;

    return ask(TCPSTORE_DELETE_KEY, false, key, NULL) && receive(&count, sizeof(count));
}

void chain_store_close(void)
{
    if (store >= 0)
        close(store);
    store = -1;
}
