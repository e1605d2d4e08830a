/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/remote/channel.h"
#include "launcher/remote/remote_order.h"
#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"

static struct channel_reader reader;
static struct channel_frame frame;
static struct err e;

static size_t put_two(uint8_t *bytes, size_t size)
{
    struct evbuffer *out = evbuffer_new();
    size_t n;

    channel_put(out, CHANNEL_OUT, 3, "hello", 5);
    channel_put(out, CHANNEL_EXITED, 70000, "\x07", 1);
    n = (size_t)evbuffer_remove(out, bytes, size);
    evbuffer_free(out);
    return n;
}

TEST(frames_survive_any_cut)
{
    uint8_t bytes[64];
    size_t n = put_two(bytes, sizeof(bytes));

    for (size_t cut = 0; cut <= n; cut++) {
        unsigned frames = 0;

        for (unsigned part = 0; part < 2; part++) {
            channel_reader_add(&reader, bytes + (part ? cut : 0), part ? n - cut : cut);
            while (channel_reader_next(&reader, &frame, &e) == 1) {
                ck_assert_int_eq(frame.type, frames ? CHANNEL_EXITED : CHANNEL_OUT);
                ck_assert_uint_eq(frame.number, frames ? 70000 : 3);
                ck_assert_uint_eq(frame.size, frames ? 1 : 5);
                ck_assert_mem_eq(frame.body, frames ? "\x07" : "hello", frame.size);
                frames++;
            }
        }
        ck_assert_uint_eq(frames, 2);
        ck_assert_uint_eq(channel_reader_rest(&reader), 0);
    }
    channel_reader_wipe(&reader);
}

TEST(what_was_read_is_wiped)
{
    struct evbuffer *out = evbuffer_new();
    uint8_t bytes[64];
    size_t n;

    channel_put_secret(out, CHANNEL_ORDER, xstrdup("a secret"));
    n = (size_t)evbuffer_remove(out, bytes, sizeof(bytes));
    evbuffer_free(out);
    channel_reader_add(&reader, bytes, n);
    ck_assert_int_eq(channel_reader_next(&reader, &frame, &e), 1);
    ck_assert_int_eq(channel_reader_next(&reader, &frame, &e), 0);
    channel_reader_add(&reader, "x", 1);
    ck_assert_ptr_null(memmem(reader.data, reader.size, "secret", 6));
    channel_reader_wipe(&reader);
}

TEST(other_bytes_are_no_frames)
{
    channel_reader_add(&reader, "Last login: Sun Nov 22\n", 23);
    ck_assert_int_eq(channel_reader_next(&reader, &frame, &e), -1);
    channel_reader_wipe(&reader);
}

TEST(words_of_the_shell_come_before_the_greeting)
{
    static const char text[] = "Welcome to n1!" CHANNEL_GREETING;
    char before[8];

    for (size_t i = 0; i + 1 < sizeof(text); i++) {
        ck_assert(
            !channel_reader_skip(&reader, CHANNEL_GREETING, before, sizeof(before)));
        channel_reader_add(&reader, text + i, 1);
    }
    ck_assert(channel_reader_skip(&reader, CHANNEL_GREETING, before, sizeof(before)));
    ck_assert_str_eq(before, " to n1!");
    ck_assert_uint_eq(channel_reader_rest(&reader), 0);
    channel_reader_wipe(&reader);
}

TEST(an_order_carries_any_bytes)
{
    char *argv[] = { "crun", "--", "a b", "\"'$`\\\n\t\r*", "\xff\xfe", "", NULL };
    char *environment[] = { "A=1\n2", "B=", NULL };
    struct remote_order o = { .argv = argv,
                              .environment = environment,
                              .folder = "/tmp/a 'b'",
                              .run_id = "job",
                              .key = "crun1:x",
                              .workers = 8,
                              .detach = true },
                        got;
    char *text = remote_order_format(&o);

    ck_assert_int_eq(remote_order_parse(text, strlen(text), &got, &e), 0);
    for (unsigned i = 0; i < 7; i++)
        if (argv[i])
            ck_assert_str_eq(got.argv[i], argv[i]);
        else
            ck_assert_ptr_null(got.argv[i]);
    ck_assert_str_eq(got.environment[0], environment[0]);
    ck_assert_str_eq(got.environment[1], environment[1]);
    ck_assert_ptr_null(got.environment[2]);
    ck_assert_str_eq(got.folder, o.folder);
    ck_assert_str_eq(got.key, o.key);
    ck_assert_uint_eq(got.workers, 8);
    ck_assert(got.detach);
    ck_assert(!got.one_stream);
    remote_order_clear(&got);
    free(text);
}

TEST(a_damaged_message_is_refused)
{
    static const char *const orders[] = {
        "",
        "[]",
        "{}",
        "{\"argv\":[],\"environment\":[],\"folder\":\"/"
        "\",\"run_id\":\"a\",\"key\":\"k\","
        "\"workers\":1}",
        "{\"argv\":[1],\"environment\":[],\"folder\":\"/"
        "\",\"run_id\":\"a\",\"key\":\"k\","
        "\"workers\":1}",
        "{\"argv\":[\"a\"],\"environment\":[],\"folder\":\"/"
        "\",\"run_id\":\"a\",\"key\":"
        "\"k\",\"workers\":-1}",
    };
    struct remote_order o;
    struct remote_start s;
    struct remote_hello h;

    for (size_t i = 0; i < sizeof(orders) / sizeof(*orders); i++) {
        ck_assert_int_eq(remote_order_parse(orders[i], strlen(orders[i]), &o, &e), -1);
        ck_assert_int_eq(remote_start_parse(orders[i], strlen(orders[i]), &s, &e), -1);
        ck_assert_int_eq(remote_hello_parse(orders[i], strlen(orders[i]), &h, &e), -1);
    }
}

TEST(starts_and_greetings_go_there_and_back)
{
    char *addresses[] = { "10.0.0.1", "fd00::1", NULL };
    struct remote_start s = { -1, 2, 4, 3, true, "10.0.0.1:1" }, start;
    struct remote_hello h = { "0.1.0", CHANNEL_VERSION, "n1", addresses }, hello;
    char *text = remote_start_format(&s);

    ck_assert_int_eq(remote_start_parse(text, strlen(text), &start, &e), 0);
    ck_assert_int_eq(start.node_rank, -1);
    ck_assert_uint_eq(start.min_nodes, 2);
    ck_assert_uint_eq(start.max_nodes, 4);
    ck_assert_uint_eq(start.nodes, 3);
    ck_assert(start.host);
    ck_assert_str_eq(start.endpoints, s.endpoints);
    remote_start_clear(&start);
    free(text);

    text = remote_hello_format(&h);
    ck_assert_int_eq(remote_hello_parse(text, strlen(text), &hello, &e), 0);
    ck_assert_str_eq(hello.version, "0.1.0");
    ck_assert_str_eq(hello.host, "n1");
    ck_assert_str_eq(hello.addresses[1], "fd00::1");
    ck_assert_ptr_null(hello.addresses[2]);
    remote_hello_clear(&hello);
    free(text);
}
