/* SPDX-License-Identifier: MIT */
/*
 * Strangers at a port, as many a second as this machine can make: each connects, says
 * something, and is reset when a number of newer ones have come. Prints how many there
 * were a second.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/opt.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/proto.h"

enum { EXIT_USAGE = 2 };

enum flood_kind {
    FLOOD_SILENT, /* says nothing */
    FLOOD_RANDOM, /* random bytes */
    FLOOD_TLS,    /* the beginning of a TLS hello */
    FLOOD_HALF,   /* half a hello of an agent */
    FLOOD_HELLO,  /* a whole one */
    FLOOD_CTL,    /* crunctl's, and requests whose answers are not read */
    FLOOD_MIXED,
    FLOOD_KIND_COUNT
};

static const char *const flood_kinds[] = { "silent", "random", "tls",  "half",
                                           "hello",  "ctl",    "mixed" };

struct flood_options {
    long long port, seconds, open, rate;
    const char *kind;
    bool help;
};

struct flood {
    struct flood_options o;
    enum flood_kind kind;
    struct sockaddr_in to;
    int *fd; /* open ones, a ring */
    uint64_t made, refused;
    uint8_t hello[2][1024];
    size_t hello_size[2];
};

static const struct opt options[] = {
    { "port", 'p', "PORT", "of 127.0.0.1", .set = opt_set_int,
      .offset = offsetof(struct flood_options, port), .min = 1, .max = 65535 },
    { "seconds", 's', "N", "how long, 10 by default", .set = opt_set_int,
      .offset = offsetof(struct flood_options, seconds), .min = 1, .max = 100000 },
    { "open", 'o', "N", "how many stay open, 64 by default", .set = opt_set_int,
      .offset = offsetof(struct flood_options, open), .min = 1, .max = 100000 },
    { "rate", 'r', "N", "at most so many a second", .set = opt_set_int,
      .offset = offsetof(struct flood_options, rate), .min = 0, .max = 10000000 },
    { "kind", 'k', "silent|random|tls|half|hello|ctl|mixed", "what they say",
      .set = opt_set_text, .offset = offsetof(struct flood_options, kind) },
    OPT_HELP(struct flood_options),
    { .name = NULL },
};

static size_t make_hello(uint8_t *to, size_t size, enum peer_kind role)
{
    struct msg m = { .type = MSG_HELLO, .sequence = 1 };
    size_t used = FRAME_PREFACE_SIZE;

    m.hello.version_min = m.hello.version_max = PROTO_VERSION_MAX;
    m.hello.role = role;
    memcpy(to, FRAME_PREFACE, used);
    used += proto_encode(&m, to + used, size - used);
    for (int i = 0; role == PEER_CTL && i < 8; i++)
        used += proto_encode(&(struct msg){ .type = MSG_EVENTS }, to + used,
                             size - used);
    return used;
}

/* What one stranger says. Returns its size. */
static size_t flood_words(const struct flood *f, const uint8_t **data)
{
    static const uint8_t tls[] = { 0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3 };
    static uint32_t noise[16];
    enum flood_kind kind = f->kind == FLOOD_MIXED
                               ? (enum flood_kind)(f->made % FLOOD_MIXED)
                               : f->kind;

    switch (kind) {
    case FLOOD_SILENT:
        return 0;
    case FLOOD_RANDOM:
        for (unsigned i = 0; i < sizeof(noise) / sizeof(noise[0]); i++)
            noise[i] = (uint32_t)random() << 1;
        *data = (const uint8_t *)noise;
        return sizeof(noise);
    case FLOOD_TLS:
        *data = tls;
        return sizeof(tls);
    default:
        *data = f->hello[kind == FLOOD_CTL];
        return f->hello_size[kind == FLOOD_CTL] / (kind == FLOOD_HALF ? 2 : 1);
    }
}

/* With a reset no port stays in use. */
static void close_at_once(int fd)
{
    struct linger now = { .l_onoff = 1 };

    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(fd);
}

static void make_stranger(struct flood *f)
{
    int *place = &f->fd[f->made % (uint64_t)f->o.open];
    const uint8_t *data = NULL;
    size_t size = flood_words(f, &data);

    close_at_once(*place);
    *place = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    f->made++;
    if (connect(*place, (struct sockaddr *)&f->to, sizeof(f->to)) < 0 &&
        errno != EINPROGRESS)
        f->refused++;
    else if (size > 0)
        (void)!send(*place, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void flood_run(struct flood *f)
{
    uint64_t begun_us = clock_us(), us = 0;

    while (us < (uint64_t)f->o.seconds * 1000000) {
        if (!f->o.rate || f->made * 1000000 < (uint64_t)f->o.rate * us)
            make_stranger(f);
        else
            usleep(100);
        us = clock_us() - begun_us;
    }
    for (long long i = 0; i < f->o.open; i++)
        close_at_once(f->fd[i]);
    printf("%.0f connections a second, %llu in all, %llu not made\n",
           (double)f->made * 1e6 / (double)us, (unsigned long long)f->made,
           (unsigned long long)f->refused);
}

static int fail_usage(const char *why)
{
    fprintf(stderr, "flood-load: %s\n", why);
    return EXIT_USAGE;
}

static void flood_prepare(struct flood *f)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    f->to = (struct sockaddr_in){ .sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)f->o.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    f->hello_size[0] = make_hello(f->hello[0], sizeof(f->hello[0]), PEER_AGENT);
    f->hello_size[1] = make_hello(f->hello[1], sizeof(f->hello[1]), PEER_CTL);
    f->fd = xcalloc((size_t)f->o.open, sizeof(*f->fd));
    for (long long i = 0; i < f->o.open; i++)
        f->fd[i] = -1;
}

int main(int argc, char **argv)
{
    const struct opt_rules rules = { .table = options };
    struct flood f = { .o = { .seconds = 10, .open = 64, .kind = "mixed" } };
    struct err e;
    int first_word;

    if (opt_parse(&rules, argc, argv, &f.o, &first_word, &e) < 0)
        return fail_usage(e.text);
    if (f.o.help) {
        puts("usage: flood-load --port PORT [flags]\n");
        opt_print(options, stdout);
        return EXIT_SUCCESS;
    }
    while (f.kind < FLOOD_KIND_COUNT && strcmp(flood_kinds[f.kind], f.o.kind) != 0)
        f.kind++;
    if (first_word < argc || !f.o.port || f.kind == FLOOD_KIND_COUNT)
        return fail_usage("--port and a known --kind are needed");
    flood_prepare(&f);
    flood_run(&f);
    free(f.fd);
    return EXIT_SUCCESS;
}
