/* SPDX-License-Identifier: MIT */
/*
 * In the place of ssh: after 50 ms (FAKE_SSH_MS) the command runs on this machine,
 * under the name of its host where the user may do that. With FAKE_SSH_SIMULATE=1 there
 * is no shell and no node behind it: it answers as a far side of crun does whose
 * workers end at once. Connections to other hosts it makes as the real one, with the
 * same code.
 */
#include <event2/event.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "launcher/remote/channel.h"
#include "launcher/remote/far/relay.h"
#include "launcher/remote/remote_order.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/version.h"

#define DELAY_MS 50

/* A far side without a node. */
struct simulated {
    struct loop *loop;
    struct relay *relay;
    struct channel_reader reader;
    bool is_ending;
};

static void put_simulated(void *arg, enum channel_type type, uint32_t host,
                          const void *body, size_t size)
{
    uint8_t frame[CHANNEL_HEADER_BYTES + CHANNEL_DATA_MAX];

    (void)arg;
    channel_format_header(frame, type, host, size);
    if (size)
        memcpy(frame + CHANNEL_HEADER_BYTES, body, size);
    if (write(STDOUT_FILENO, frame, CHANNEL_HEADER_BYTES + size) < 0)
        _exit(1);
}

static void stop_if_idle(void *arg)
{
    struct simulated *s = arg;

    if (s->is_ending && relay_is_idle(s->relay))
        loop_stop(s->loop);
}

static void answer_frame(struct simulated *s, const struct channel_frame *frame)
{
    static const uint8_t port[2] = { 1, 1 }, code = 0;

    if (frame->type == CHANNEL_ORDER)
        put_simulated(s, CHANNEL_LISTENING, frame->host, port, sizeof(port));
    else if (frame->type == CHANNEL_START)
        put_simulated(s, CHANNEL_EXITED, frame->host, &code, 1);
    else
        relay_handle_frame(s->relay, frame);
}

static void on_simulated_input(evutil_socket_t fd, short what, void *arg)
{
    struct simulated *s = arg;
    struct channel_frame frame;
    char data[CHANNEL_DATA_MAX];
    ssize_t n = read(fd, data, sizeof(data));
    struct err e;

    (void)what;
    if (n <= 0) {
        s->is_ending = true;
        relay_shut_all(s->relay);
        stop_if_idle(s);
        event_base_loopbreak(loop_base(s->loop));
        return;
    }
    channel_reader_add(&s->reader, data, (size_t)n);
    while (channel_reader_next(&s->reader, &frame, &e) > 0)
        answer_frame(s, &frame);
}

static void on_simulated_child(void *arg, int signo)
{
    (void)signo;
    relay_reap(((struct simulated *)arg)->relay);
}

static void greet_simulated(const char *host)
{
    char *addresses[] = { "127.0.0.1", NULL };
    struct remote_hello hello = { (char *)CRUN_VERSION, CHANNEL_VERSION, (char *)host,
                                  addresses };
    char *text = remote_hello_format(&hello);

    if (write(STDOUT_FILENO, CHANNEL_GREETING, strlen(CHANNEL_GREETING)) < 0)
        _exit(1);
    put_simulated(NULL, CHANNEL_HELLO, 0, text, strlen(text));
    free(text);
}

static int simulate(const char *host)
{
    struct simulated s = { .loop = loop_create() };
    const struct relay_calls calls = { put_simulated, stop_if_idle, &s };
    struct event *input;
    char command[65536];

    s.relay = relay_create(s.loop, &calls);
    loop_on_signal(s.loop, SIGCHLD, on_simulated_child, &s);
    if (read(STDIN_FILENO, command, sizeof(command)) <= 0) /* for the shell */
        return 1;
    greet_simulated(host);
    input = event_new(loop_base(s.loop), STDIN_FILENO, EV_READ | EV_PERSIST,
                      on_simulated_input, &s);
    event_add(input, NULL);
    while (!s.is_ending || !relay_is_idle(s.relay)) {
        loop_turn(s.loop, 1000);
        if (s.is_ending)
            event_del(input);
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
