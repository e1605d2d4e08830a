/* SPDX-License-Identifier: MIT */
#include "tests/worlds/store_clients.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/log.h"
#include "tests/worlds/check_main.h"

struct store_server *server;

static struct {
    pthread_mutex_t lock;
    unsigned lines;
    char last[512];
} seen = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void note_line(void *arg, enum log_level level, const char *line)
{
    pthread_mutex_lock(&seen.lock);
    seen.lines++;
    snprintf(seen.last, sizeof(seen.last), "%s", line);
    pthread_mutex_unlock(&seen.lock);
}

unsigned lines_seen(void)
{
    unsigned lines;

    pthread_mutex_lock(&seen.lock);
    lines = seen.lines;
    pthread_mutex_unlock(&seen.lock);
    return lines;
}

void expect_line(const char *part)
{
    uint64_t until = clock_ms() + PATIENCE_MS;
    bool found = false;

    while (!found && clock_ms() < until) {
        pthread_mutex_lock(&seen.lock);
        found = strstr(seen.last, part) != NULL;
        pthread_mutex_unlock(&seen.lock);
        if (!found)
            poll(NULL, 0, 1);
    }
    ck_assert_msg(found, "no line with \"%s\": %s", part, seen.last);
}

struct net_addr loopback(void)
{
    struct net_addr addr;
    struct err e;
    size_t count;

    ck_assert_int_eq(net_resolve("127.0.0.1", 0, &addr, 1, &count, &e), 0);
    return addr;
}

void start_server(struct store_server_config config)
{
    static struct net_addr addr;
    struct err e;

    addr = loopback();
    config.listen = &addr;
    log_set_sink(note_line, NULL);
    server = store_server_create(&config, &e);
    ck_assert_msg(server != NULL, "%s", e.text);
}

void start_plain_server(void)
{
    start_server((struct store_server_config){ .open = false });
}

void stop_server(void)
{
    store_server_destroy(server);
    server = NULL;
}

int dial_store(int receive_buffer)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons(store_server_port(server)),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    ck_assert_int_ge(fd, 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (receive_buffer)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    ck_assert_int_eq(connect(fd, (struct sockaddr *)(void *)&to, sizeof(to)), 0);
    return fd;
}

void say_bytes(int fd, const void *data, size_t size)
{
    ck_assert_int_eq(send(fd, data, size, MSG_NOSIGNAL), (ssize_t)size);
}

void hear_bytes(int fd, const void *data, size_t size)
{
    uint8_t got[64];
    ssize_t n = recv(fd, got, size, MSG_WAITALL);

    ck_assert_int_eq(n, (ssize_t)size);
    ck_assert_mem_eq(got, data, size);
}

int connect_client(void)
{
    int fd = dial_store(0);

    SAY(fd, HELLO PING);
    HEAR(fd, "1234");
    return fd;
}

void expect_silence(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    ck_assert_int_eq(poll(&p, 1, 20), 0);
}

void expect_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, 0);

    ck_assert_msg(n == 0 || (n < 0 && errno == ECONNRESET), "still open: %zd", n);
    close(fd);
}
