/* SPDX-License-Identifier: MIT */
/*
 * In the place of ssh: after 50 ms (FAKE_SSH_MS) the command runs on this machine,
 * under the name of its host where the user may do that. With FAKE_SSH_SIMULATE=1 there
 * is no shell and no node behind it: it answers as a far side of crun does whose
 * workers end at once.
 */
#include <event2/buffer.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "launcher/remote/channel.h"
#include "launcher/remote/remote_order.h"
#include "rendezvous/common/base/version.h"

#define DELAY_MS 50

static void put_simulated(enum channel_type type, const void *body, size_t size)
{
    struct evbuffer *out = evbuffer_new();

    channel_put(out, type, 0, body, size);
    while (evbuffer_get_length(out) > 0)
        if (evbuffer_write(out, STDOUT_FILENO) < 0)
            _exit(1);
    evbuffer_free(out);
}

static void greet_simulated(const char *host)
{
    char *addresses[] = { "127.0.0.1", NULL };
    struct remote_hello hello = { (char *)CRUN_VERSION, CHANNEL_VERSION, (char *)host,
                                  addresses };
    char *text = remote_hello_format(&hello);

    if (write(STDOUT_FILENO, CHANNEL_GREETING, strlen(CHANNEL_GREETING)) < 0)
        _exit(1);
    put_simulated(CHANNEL_HELLO, text, strlen(text));
    free(text);
}

/* A far side without a node. */
static int simulate(const char *host)
{
    static const uint8_t port[2] = { 1, 1 }, code = 0;
    struct channel_reader reader = { .size = 0 };
    struct channel_frame frame;
    char data[CHANNEL_DATA_MAX];
    struct err e;
    ssize_t n;

    if (read(STDIN_FILENO, data, sizeof(data)) <= 0) /* for the shell */
        return 1;
    greet_simulated(host);
    while ((n = read(STDIN_FILENO, data, sizeof(data))) > 0) {
        channel_reader_add(&reader, data, (size_t)n);
        while (channel_reader_next(&reader, &frame, &e) > 0)
            if (frame.type == CHANNEL_ORDER)
                put_simulated(CHANNEL_LISTENING, port, sizeof(port));
            else if (frame.type == CHANNEL_START)
                put_simulated(CHANNEL_EXITED, &code, 1);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *ms = getenv("FAKE_SSH_MS"), *simulated = getenv("FAKE_SSH_SIMULATE");
    long delay = ms ? strtol(ms, NULL, 10) : DELAY_MS;
    struct timespec pause = { delay / 1000, delay % 1000 * 1000000 };
    char command[65536] = "";
    int i = 1;

    while (i < argc && argv[i][0] == '-')
        i++;
    if (i >= argc - 1) {
        fprintf(stderr, "usage: fake-ssh [-FLAG]... HOST COMMAND...\n");
        return 2;
    }
    nanosleep(&pause, NULL);
    if (simulated && *simulated == '1')
        return simulate(argv[i]);
    if (unshare(CLONE_NEWUTS) == 0)
        (void)!sethostname(argv[i], strlen(argv[i]));
    for (int word = i + 1; word < argc; word++) {
        strncat(command, " ", sizeof(command) - strlen(command) - 1);
        strncat(command, argv[word], sizeof(command) - strlen(command) - 1);
    }
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    return 127;
}
