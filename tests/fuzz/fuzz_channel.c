/* SPDX-License-Identifier: MIT */
/*
 * The frames between the launcher and the hosts of a job, in pieces of any size, and
 * the messages in them. A message that was read, written and read again is the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/remote/channel.h"
#include "launcher/remote/remote_order.h"

static void check_channel(int holds)
{
    if (!holds)
        abort();
}

static void check_texts(char *const *a, char *const *b)
{
    for (; *a && *b; a++, b++)
        check_channel(strcmp(*a, *b) == 0);
    check_channel(!*a && !*b);
}

static void read_fuzzed_order(const struct channel_frame *frame)
{
    struct remote_order order, again;
    struct err e;
    char *text;

    if (remote_order_parse(frame->body, frame->size, &order, &e) < 0)
        return;
    check_channel(order.argv[0] != NULL);
    text = remote_order_format(&order);
    check_channel(remote_order_parse(text, strlen(text), &again, &e) == 0);
    check_texts(order.argv, again.argv);
    check_texts(order.environment, again.environment);
    check_channel(strcmp(order.folder, again.folder) == 0 &&
                  strcmp(order.key, again.key) == 0 && order.workers == again.workers);
    free(text);
    remote_order_clear(&order);
    remote_order_clear(&again);
}

static void read_fuzzed_hello(const struct channel_frame *frame)
{
    struct remote_hello hello, again;
    struct err e;
    char *text;

    if (remote_hello_parse(frame->body, frame->size, &hello, &e) < 0)
        return;
    text = remote_hello_format(&hello);
    check_channel(remote_hello_parse(text, strlen(text), &again, &e) == 0);
    check_texts(hello.addresses, again.addresses);
    free(text);
    remote_hello_clear(&hello);
    remote_hello_clear(&again);
}

static void read_fuzzed_start(const struct channel_frame *frame)
{
    struct remote_start start;
    struct err e;

    if (remote_start_parse(frame->body, frame->size, &start, &e) < 0)
        return;
    check_channel(start.endpoints != NULL && start.node_rank >= -1);
    remote_start_clear(&start);
}

/* The first byte decides how the rest is cut into pieces. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct channel_reader reader = { .data = NULL };
    struct channel_frame frame;
    char before[16];
    struct err e;
    size_t step;
    int rc = 0;

    if (size == 0)
        return 0;
    step = 1 + *data++;
    size--;
    while (size > 0 && rc >= 0) {
        size_t n = size < step ? size : step;

        channel_reader_add(&reader, data, n);
        data += n;
        size -= n;
        (void)channel_reader_skip(&reader, CHANNEL_GREETING, before, sizeof(before));
        while ((rc = channel_reader_next(&reader, &frame, &e)) > 0) {
            read_fuzzed_order(&frame);
            read_fuzzed_hello(&frame);
            read_fuzzed_start(&frame);
        }
    }
    channel_reader_wipe(&reader);
    return 0;
}
