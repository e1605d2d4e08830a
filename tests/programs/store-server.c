/* SPDX-License-Identifier: MIT */
/*
 * The store alone, for tests and benchmarks: serves until SIGTERM or SIGINT. The first
 * line on standard output is the port.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/opt.h"
#include "rendezvous/tcpstore/store_server.h"

enum { EXIT_USAGE = 2 };

struct server_settings {
    const char *listen;
    bool open;
    bool help;
};

static const struct opt options[] = {
    { "listen", 'l', "HOST:PORT", "where to listen, 127.0.0.1:0 by default",
      .set = opt_set_text, .offset = offsetof(struct server_settings, listen) },
    { "open", 0, NULL, "take connections from any address, not from loopback alone",
      .set = opt_set_true, .offset = offsetof(struct server_settings, open) },
    OPT_HELP(struct server_settings),
    { .name = NULL },
};

static int print_usage(const struct err *e)
{
    fprintf(stderr, "store-server: %s\n", e->text);
    return EXIT_USAGE;
}

static int resolve(const char *text, struct net_addr *addr, struct err *e)
{
    char host[HOST_NAME_MAX_BYTES + 1];
    uint16_t port;
    size_t count;

    if (net_split(text, 0, host, sizeof(host), &port, e) < 0)
        return -1;
    return net_resolve(host, port, addr, 1, &count, e);
}

/* As many connections as the system lets us have. */
static void raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int serve_forever(const struct store_server_config *config)
{
    struct store_server *server;
    sigset_t ends;
    struct err e;
    int signo;

    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    server = store_server_create(config, &e);
    if (!server) {
        log_error("%s", e.text);
        return EXIT_FAILURE;
    }
    printf("%u\n", store_server_port(server));
    fflush(stdout);
    sigwait(&ends, &signo);
    store_server_destroy(server);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    const struct opt_rules rules = { .table = options, .stop_at_word = true };
    struct server_settings settings = { .listen = "127.0.0.1:0" };
    struct store_server_config config = { 0 };
    struct net_addr addr;
    struct err e;
    int first_word;

    log_init("store-server", LOG_INFO, LOG_TEXT);
    if (opt_parse(&rules, argc, argv, &settings, &first_word, &e) < 0)
        return print_usage(&e);
    if (settings.help) {
        puts("usage: store-server [--listen HOST:PORT] [--open]\n");
        opt_print(options, stdout);
        return EXIT_SUCCESS;
    }
    if (first_word < argc) {
        err_set(&e, "unexpected argument \"%s\"", argv[first_word]);
        return print_usage(&e);
    }
    if (resolve(settings.listen, &addr, &e) < 0) {
        err_wrap(&e, "--listen");
        return print_usage(&e);
    }
    raise_descriptors();
    config.listen = &addr;
    config.open = settings.open;
    return serve_forever(&config);
}
