/* SPDX-License-Identifier: MIT */
/*
 * A load generator for the store and for the servers that it is compared with: one
 * thread, one epoll set, any number of clients. A client sends the requests of its
 * turn, waits until it has received every byte of the expected answer, and continues
 * with the next turn. There may be additional idle connections; they send the first
 * message of the protocol like any other.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/opt.h"
#include "rendezvous/common/base/xalloc.h"
#include "scripts/bench/load/store-load-dialect.h"
#include "scripts/bench/load/store-load-echo.h"

#define EXIT_USAGE 2
#define EVENTS_MAX 512
#define READ_BYTES 262144
#define PATIENCE_MS 10000 /* an answer that takes longer counts as missing */
#define WARM_UP_SHARE 10  /* a tenth of the time is not counted */
#define CLIENTS_MAX 60000

struct options {
    int dialect, operation;
    const char *host;
    long long port, clients, depth, idle, count, value_bytes;
    uint64_t duration_ms;
    bool serve_echo, hold, help;
};

struct conn {
    int fd;
    unsigned side;
    bool blocked; /* the server has not read all of the request */
    size_t said, heard;
    struct client *client;
};

struct client {
    struct conn conn[2]; /* [1] only for OP_WAIT */
    struct script script;
    unsigned turn;
};

struct load {
    const struct options *options;
    struct net_addr server;
    int epoll;
    unsigned sides;
    struct client *clients;
    int *idle;
    uint64_t operations;
    uint8_t *buffer;
};

static int find_name(const char *const *names, int count, const char *value,
                     struct err *e)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], value) == 0)
            return i;
    err_set(e, "\"%s\" is not one of: ", value);
    for (int i = 0; i < count; i++) {
        size_t used = strlen(e->text);

        snprintf(e->text + used, sizeof(e->text) - used, "%s%s", i ? ", " : "",
                 names[i]);
    }
    return -1;
}

static int set_dialect(void *target, const struct opt *opt, const char *value,
                       struct err *e)
{
    struct options *o = target;

    (void)opt;
    o->dialect = find_name(dialect_names, DIALECT_COUNT, value, e);
    return o->dialect < 0 ? -1 : 0;
}

static int set_operation(void *target, const struct opt *opt, const char *value,
                         struct err *e)
{
    struct options *o = target;

    (void)opt;
    o->operation = find_name(operation_names, OP_COUNT, value, e);
    return o->operation < 0 ? -1 : 0;
}

static const struct opt table[] = {
    { .name = "protocol",
      .arg = "NAME",
      .help = "The server's protocol: tcpstore, redis or echo. Default: tcpstore.",
      .set = set_dialect },
    { .name = "op",
      .arg = "NAME",
      .help = "set, get, add, wait (a client waits for a key and a second one sets it) "
              "or pyget (wait, then get, as PyTorch's client does). Default: get.",
      .set = set_operation },
    { .name = "host",
      .arg = "HOST",
      .help = "The server's address. Default: 127.0.0.1.",
      .set = opt_set_text,
      .offset = offsetof(struct options, host) },
    { .name = "port",
      .arg = "PORT",
      .help = "The server's port. With --serve-echo: our own, by default any.",
      .set = opt_set_int,
      .offset = offsetof(struct options, port),
      .max = 65535 },
    { .name = "clients",
      .arg = "N",
      .help = "How many clients. Each has one key. Default: 16.",
      .set = opt_set_int,
      .offset = offsetof(struct options, clients),
      .max = CLIENTS_MAX },
    { .name = "depth",
      .arg = "N",
      .help = "How many operations a client sends before it reads. Default: 1.",
      .set = opt_set_int,
      .offset = offsetof(struct options, depth),
      .min = 1,
      .max = 10000 },
    { .name = "value-bytes",
      .arg = "N",
      .help = "The size of a value. Default: 32.",
      .set = opt_set_int,
      .offset = offsetof(struct options, value_bytes),
      .max = 8 << 20 },
    { .name = "idle",
      .arg = "N",
      .help = "Number of additional idle connections. Default: 0.",
      .set = opt_set_int,
      .offset = offsetof(struct options, idle),
      .max = CLIENTS_MAX },
    { .name = "seconds",
      .arg = "S",
      .help = "How long to measure, after a tenth of it to warm up. Default: 2.",
      .set = opt_set_seconds,
      .offset = offsetof(struct options, duration_ms),
      .min = 10,
      .max = 3600000 },
    { .name = "count",
      .arg = "N",
      .help = "End after N operations, if that comes first.",
      .set = opt_set_int,
      .offset = offsetof(struct options, count),
      .min = 1,
      .max = 1000000000000 },
    { .name = "hold",
      .help = "Open the connections, print \"ready\", and measure nothing: end with "
              "standard input.",
      .set = opt_set_true,
      .offset = offsetof(struct options, hold) },
    { .name = "serve-echo",
      .help = "Run as the echo server. The first line has the address.",
      .set = opt_set_true,
      .offset = offsetof(struct options, serve_echo) },
    OPT_HELP(struct options),
    { .name = NULL }
};

static const struct exchange *now_saying(const struct client *c)
{
    return &c->script.turn[c->turn];
}

/* Sends a request and receives its answer on a blocking socket. */
static int converse(int fd, const struct exchange *x, struct err *e)
{
    uint8_t *heard = xmalloc(x->reply[0].size);
    size_t size = x->reply[0].size;
    int result = 0;

    if (send(fd, x->request[0].data, x->request[0].size, MSG_NOSIGNAL) !=
            (ssize_t)x->request[0].size ||
        recv(fd, heard, size, MSG_WAITALL) != (ssize_t)size)
        result = err_set_errno(e, errno, "the server does not answer");
    else if (memcmp(heard, x->reply[0].data, size) != 0)
        result = err_set(e, "the server's first answer is not what was expected");
    free(heard);
    return result;
}

/* A connection after its first message, on a socket that still blocks; or -1. */
static int open_conn(const struct load *l, const struct exchange *hello, struct err *e)
{
    const struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };
    const int on = 1;
    int fd = socket(l->server.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return err_set_errno(e, errno, "no socket");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(fd, (const struct sockaddr *)&l->server.sa, l->server.len) < 0) {
        close(fd);
        return err_set_errno(e, errno, "cannot connect");
    }
    if (converse(fd, hello, e) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int open_idle(struct load *l, const struct exchange *hello, struct err *e)
{
    l->idle = xcalloc((size_t)l->options->idle, sizeof(*l->idle));
    for (long long i = 0; i < l->options->idle; i++) {
        l->idle[i] = open_conn(l, hello, e);
        if (l->idle[i] < 0)
            return err_wrap(e, "idle connection %lld", i);
    }
    return 0;
}

static int open_client(struct load *l, struct client *c, const struct exchange *hello,
                       struct err *e)
{
    for (unsigned side = 0; side < l->sides; side++) {
        struct conn *conn = &c->conn[side];
        struct epoll_event event = { .events = EPOLLIN, .data.ptr = conn };

        conn->client = c;
        conn->side = side;
        conn->fd = open_conn(l, hello, e);
        if (conn->fd < 0)
            return -1;
        if (side == 0 && converse(conn->fd, &c->script.prepare, e) < 0)
            return -1;
        fcntl(conn->fd, F_SETFL, O_NONBLOCK);
        epoll_ctl(l->epoll, EPOLL_CTL_ADD, conn->fd, &event);
    }
    return 0;
}

static int open_clients(struct load *l, const struct exchange *hello, struct err *e)
{
    const struct options *o = l->options;
    struct bytes value = { .size = (size_t)o->value_bytes };
    int result = 0;

    value.data = xmalloc(value.size + 1);
    memset(value.data, 'v', value.size);
    l->clients = xcalloc((size_t)o->clients, sizeof(*l->clients));
    for (long long i = 0; i < o->clients && result == 0; i++) {
        char key[32];

        snprintf(key, sizeof(key), "/bench/%06lld", i);
        dialect_script((enum dialect)o->dialect, (enum operation)o->operation, key,
                       &value, (unsigned)o->depth, &l->clients[i].script);
        result = open_client(l, &l->clients[i], hello, e);
        if (result < 0)
            err_wrap(e, "client %lld", i);
    }
    free(value.data);
    return result;
}

static int speak(struct load *l, struct conn *c, struct err *e)
{
    const struct bytes *request = &now_saying(c->client)->request[c->side];
    bool was_blocked = c->blocked;

    c->blocked = false;
    while (c->said < request->size) {
        ssize_t n = send(c->fd, request->data + c->said, request->size - c->said,
                         MSG_NOSIGNAL);

        if (n < 0 && errno != EAGAIN)
            return err_set_errno(e, errno, "the server closed a connection");
        if (n < 0) {
            c->blocked = true;
            break;
        }
        c->said += (size_t)n;
    }
    if (c->blocked != was_blocked) {
        struct epoll_event event = { .events = EPOLLIN | (c->blocked ? EPOLLOUT : 0),
                                     .data.ptr = c };

        epoll_ctl(l->epoll, EPOLL_CTL_MOD, c->fd, &event);
    }
    return 0;
}

static int begin_turn(struct load *l, struct client *c, struct err *e)
{
    for (unsigned side = 0; side < l->sides; side++)
        c->conn[side].said = c->conn[side].heard = 0;
    for (unsigned side = 0; side < l->sides; side++)
        if (now_saying(c)->request[side].size && speak(l, &c->conn[side], e) < 0)
            return -1;
    return 0;
}

static bool turn_is_over(const struct load *l, const struct client *c)
{
    for (unsigned side = 0; side < l->sides; side++)
        if (c->conn[side].heard < now_saying(c)->reply[side].size)
            return false;
    return true;
}

static int hear(struct load *l, struct conn *c, struct err *e)
{
    const struct bytes *reply = &now_saying(c->client)->reply[c->side];
    ssize_t n = recv(c->fd, l->buffer, READ_BYTES, 0);

    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0)
        return err_set_errno(e, n < 0 ? errno : ECONNRESET,
                             "the server closed a connection");
    if ((size_t)n > reply->size - c->heard)
        return err_set(e, "the server sent %zd bytes where %zu were expected", n,
                       reply->size - c->heard);
    if (memcmp(l->buffer, reply->data + c->heard, (size_t)n) != 0)
        return err_set(e, "an answer differs from what was expected");
    c->heard += (size_t)n;
    if (!turn_is_over(l, c->client))
        return 0;
    l->operations += now_saying(c->client)->operations;
    c->client->turn = (c->client->turn + 1) % c->client->script.turns;
    return begin_turn(l, c->client, e);
}

static int one_pass(struct load *l, struct err *e)
{
    struct epoll_event events[EVENTS_MAX];
    int n = epoll_wait(l->epoll, events, EVENTS_MAX, PATIENCE_MS);

    if (n == 0)
        return err_set(e, "no answer in %d s", PATIENCE_MS / 1000);
    for (int i = 0; i < n; i++) {
        struct conn *c = events[i].data.ptr;

        if ((events[i].events & EPOLLOUT) && speak(l, c, e) < 0)
            return -1;
        if ((events[i].events & ~(uint32_t)EPOLLOUT) && hear(l, c, e) < 0)
            return -1;
    }
    return 0;
}

static int run_until(struct load *l, uint64_t end_us, uint64_t count, struct err *e)
{
    while (clock_us() < end_us && l->operations < count)
        if (one_pass(l, e) < 0)
            return -1;
    return 0;
}

static int measure(struct load *l, struct err *e)
{
    const struct options *o = l->options;
    uint64_t duration_us = o->duration_ms * 1000, start;

    for (long long i = 0; i < o->clients; i++)
        if (begin_turn(l, &l->clients[i], e) < 0)
            return -1;
    if (run_until(l, clock_us() + duration_us / WARM_UP_SHARE, UINT64_MAX, e) < 0)
        return -1;
    l->operations = 0;
    start = clock_us();
    if (run_until(l, start + duration_us, o->count ? (uint64_t)o->count : UINT64_MAX,
                  e) < 0)
        return -1;
    printf("%.0f operations a second (%s %s, %lld clients, depth %lld, %lld idle)\n",
           (double)l->operations * 1e6 / (double)(clock_us() - start),
           dialect_names[o->dialect], operation_names[o->operation], o->clients,
           o->depth, o->idle);
    return 0;
}

static int hold(void)
{
    char byte;

    puts("ready");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    return 0;
}

static void load_fini(struct load *l)
{
    for (long long i = 0; l->clients && i < l->options->clients; i++)
        script_fini(&l->clients[i].script);
    free(l->clients);
    free(l->idle);
    free(l->buffer);
    /* the kernel closes the connections */
}

static int run(const struct options *o, struct err *e)
{
    struct load l = { .options = o, .sides = o->operation == OP_WAIT ? 2 : 1 };
    struct exchange hello = { 0 };
    size_t found;
    int result = -1;

    if (net_resolve(o->host, (uint16_t)o->port, &l.server, 1, &found, e) < 0)
        return -1;
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    l.buffer = xmalloc(READ_BYTES);
    dialect_hello((enum dialect)o->dialect, &hello);
    if (open_idle(&l, &hello, e) == 0 && open_clients(&l, &hello, e) == 0)
        result = o->hold ? hold() : measure(&l, e);
    exchange_fini(&hello);
    load_fini(&l);
    return result;
}

static int check_options(const struct options *o, struct err *e)
{
    if (o->serve_echo || o->help)
        return 0;
    if (!o->port)
        return err_set(e, "--port is missing");
    if (!o->clients && !o->hold)
        return err_set(e, "--clients 0 has nothing to measure without --hold");
    if (o->depth > 1 && (o->operation == OP_WAIT || o->operation == OP_PYGET))
        return err_set(e, "--depth %lld: --op %s has a depth of 1", o->depth,
                       operation_names[o->operation]);
    return 0;
}

static void raise_file_limit(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return;
    files.rlim_cur = files.rlim_max;
    (void)!setrlimit(RLIMIT_NOFILE, &files);
}

int main(int argc, char **argv)
{
    const struct opt_rules rules = { .table = table };
    struct options o = { .dialect = DIALECT_TCPSTORE,
                         .operation = OP_GET,
                         .host = "127.0.0.1",
                         .clients = 16,
                         .depth = 1,
                         .value_bytes = 32,
                         .duration_ms = 2000 };
    struct err e;
    int first_word;

    if (opt_parse(&rules, argc, argv, &o, &first_word, &e) < 0 ||
        check_options(&o, &e) < 0) {
        fprintf(stderr, "store-load: %s\n", e.text);
        return EXIT_USAGE;
    }
    if (o.help) {
        printf("usage: store-load --port PORT [flags]\n\n");
        opt_print(table, stdout);
        return 0;
    }
    raise_file_limit();
    if ((o.serve_echo ? echo_serve((uint16_t)o.port, &e) : run(&o, &e)) < 0) {
        fprintf(stderr, "store-load: %s\n", e.text);
        return 1;
    }
    return 0;
}
