/* SPDX-License-Identifier: MIT */
/*
 * Conversations byte by byte as they are on the wire, each fed whole, cut in two at
 * every point, and one byte at a time. What is not worth writing out stands in
 * test_tcpstore_sizes.c.
 */
#include "rendezvous/tcpstore/tcpstore.h"

#include <string.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/tcpstore_world.h"

#define STEPS_MAX 12

#define MINUS(byte) byte "\xff\xff\xff\xff\xff\xff\xff"
#define BYTES(literal)                                                                 \
    (struct wire_bytes)                                                                \
    {                                                                                  \
        literal, sizeof(literal) - 1                                                   \
    }
#define SAYS(who, literal) .client = who, .says = BYTES(literal)
#define GETS(who, literal) .gets[who] = BYTES(literal)
#define REFUSED(reason) .refused = reason

#define SET_A1 "\x01" N("\x02") "/a" N("\x01") "1"
#define GET_A "\x03" N("\x02") "/a"
#define WAIT_A "\x06" N("\x01") N("\x02") "/a"
#define CANCEL "\x0c"

struct wire_bytes {
    const char *data;
    size_t size;
};

/* A client says something, and after that each client has got something. */
struct dialogue_step {
    int client;
    struct wire_bytes says;
    struct wire_bytes gets[CLIENTS];
    const char *refused; /* the client is cut off, with a reason that has this in it */
};

struct conversation {
    const char *name;
    struct dialogue_step step[STEPS_MAX];
};

/* All clients have validated, unless the name begins with "hello". */
static const struct conversation conversations[] = {
    { "hello", { { SAYS(0, HELLO) } } },
    { "hello, ping",
      { { SAYS(0, HELLO "\x0d\x12\x34\x56\x78"), GETS(0, "\x12\x34\x56\x78") } } },
    { "hello, set and get at once",
      { { SAYS(0, HELLO SET_A1 GET_A), GETS(0, N("\x01") "1") } } },
    { "hello with another magic",
      { { SAYS(0, "\x00\xce\xf7\x85\x3d"), REFUSED("wrong magic number 3d85f7ce") } } },
    { "hello of 2.1: ADD init/",
      { { SAYS(0, "\x03" N("\x05") "init/" N("\x01")),
          REFUSED("PyTorch 2.1 or older; crun needs") } } },
    { "hello of 2.1: SET",
      { { SAYS(0, "\x00" N("\x02")), REFUSED("PyTorch 2.1 or older") } } },
    { "hello of 2.1: CANCEL_WAIT",
      { { SAYS(0, "\x0b" N("\x01")), REFUSED("PyTorch 2.1 or older") } } },
    { "hello of HTTP",
      { { SAYS(0, "GET / HTTP/1.1\r\n"),
          REFUSED("not a client of PyTorch's store") } } },
    { "hello of TLS",
      { { SAYS(0, "\x16\x03\x01\x02\x00"), REFUSED("not a client") } } },
    { "hello of nobody",
      { { SAYS(0, "\x01\xff\xff\xff\xff"), REFUSED("not a client") } } },
    { "second hello", { { SAYS(0, HELLO), REFUSED("VALIDATE: validates twice") } } },
    { "unknown operation", { { SAYS(0, "\x13"), REFUSED("unknown operation 19") } } },
    { "unknown operation after a good one",
      { { SAYS(0, SET_A1 "\xff"), REFUSED("unknown operation 255") } } },
    { "SET, GET",
      { { SAYS(0, SET_A1) },
        { SAYS(1, GET_A), GETS(1, N("\x01") "1") },
        { SAYS(1, "\x01" N("\x02") "/a" N("\x03") "two") },
        { SAYS(0, GET_A), GETS(0, N("\x03") "two") } } },
    { "GET of what is not there", { { SAYS(0, GET_A), GETS(0, N("\x00")) } } },
    { "SET of nothing, of the key without a name",
      { { SAYS(0, "\x01" N("\x00") N("\x00") "\x05" N("\x01") N("\x00")),
          GETS(0, "\x00") },
        { SAYS(0, "\x03" N("\x00")), GETS(0, N("\x00")) } } },
    { "a key and a value with zeros",
      { { SAYS(0, "\x01" N("\x02") "\x00z" N("\x02") "z\x00\x03" N("\x02") "\x00z"),
          GETS(0, N("\x02") "z\x00") } } },
    { "COMPARE_SET of what is not there, expecting nothing",
      { { SAYS(0, "\x02" N("\x01") "k" N("\x00") N("\x01") "n"),
          GETS(0, N("\x01") "n") },
        { SAYS(0, "\x03" N("\x01") "k"), GETS(0, N("\x01") "n") } } },
    { "COMPARE_SET of what is not there, expecting something",
      { { SAYS(0, "\x02" N("\x01") "k" N("\x03") "old" N("\x01") "n"),
          GETS(0, N("\x03") "old") },
        { SAYS(0, "\x05" N("\x01") N("\x01") "k"), GETS(0, "\x01") } } },
    { "COMPARE_SET of what is as expected, and of what is not",
      { { SAYS(0, SET_A1 "\x02" N("\x02") "/a" N("\x01") "1" N("\x02") "22"),
          GETS(0, N("\x02") "22") },
        { SAYS(0, "\x02" N("\x02") "/a" N("\x01") "1" N("\x01") "3"),
          GETS(0, N("\x02") "22") } } },
    { "ADD",
      { { SAYS(0, "\x04" N("\x05") "init/" N("\x01")), GETS(0, N("\x01")) },
        { SAYS(1, "\x04" N("\x05") "init/" MINUS("\xfd")), GETS(1, MINUS("\xfe")) },
        { SAYS(2, "\x03" N("\x05") "init/"), GETS(2, N("\x02") "-2") } } },
    { "ADD to text that begins with a number",
      { { SAYS(0, "\x01" N("\x01") "n" N("\x05") "12abc"
                                                 "\x04" N("\x01") "n" N("\x01")),
          GETS(0, N("\x0d")) } } },
    { "ADD to text that is no number",
      { { SAYS(0, "\x01" N("\x01") "n" N("\x01") "x"
                                                 "\x04" N("\x01") "n" N("\x01")),
          REFUSED("ADD: the value is not a number") } } },
    { "CHECK",
      { { SAYS(0, SET_A1 "\x05" N("\x01") N("\x02") "/a"), GETS(0, "\x00") },
        { SAYS(0, "\x05" N("\x02") N("\x02") "/a" N("\x02") "/b"), GETS(0, "\x01") },
        { SAYS(0, "\x05" N("\x00")), GETS(0, "\x00") } } },
    { "WAIT for what is there, and for nothing",
      { { SAYS(0, SET_A1 WAIT_A), GETS(0, "\x00") },
        { SAYS(0, "\x06" N("\x00")), GETS(0, "\x00") } } },
    { "WAIT for SET",
      { { SAYS(0, WAIT_A) },
        { SAYS(1, WAIT_A) },
        { SAYS(2, SET_A1), GETS(0, "\x00"), GETS(1, "\x00") } } },
    { "WAIT for ADD, APPEND, COMPARE_SET, MULTI_SET",
      { { SAYS(0, "\x06" N("\x02") N("\x01") "a" N("\x01") "b") },
        { SAYS(1, "\x06" N("\x02") N("\x01") "c" N("\x01") "d") },
        { SAYS(2, "\x04" N("\x01") "a" N("\x01")), GETS(2, N("\x01")) },
        { SAYS(2, "\x09" N("\x01") "b" N("\x01") "x"), GETS(0, "\x00") },
        { SAYS(2, "\x02" N("\x01") "c" N("\x00") N("\x01") "y"),
          GETS(2, N("\x01") "y") },
        { SAYS(2, "\x0b" N("\x01") N("\x01") "d" N("\x01") "z"), GETS(1, "\x00") } } },
    { "WAIT is not ended by a COMPARE_SET that stores nothing",
      { { SAYS(0, WAIT_A) },
        { SAYS(1, "\x02" N("\x02") "/a" N("\x01") "x" N("\x01") "y"),
          GETS(1, N("\x01") "x") },
        { SAYS(1, SET_A1), GETS(0, "\x00") } } },
    { "WAIT for the same key twice, and for one that goes away again",
      { { SAYS(0, "\x06" N("\x04")
                      N("\x02") "/a" N("\x01") "b" N("\x02") "/a" N("\x01") "b") },
        { SAYS(1, SET_A1 "\x08" N("\x02") "/a"), GETS(1, N("\x01")) },
        { SAYS(1, "\x01" N("\x01") "b" N("\x00")), GETS(0, "\x00") } } },
    { "WAIT, and others go on meanwhile on the same connection",
      { { SAYS(0, WAIT_A GET_A), GETS(0, N("\x00")) },
        { SAYS(0, SET_A1), GETS(0, "\x00") } } },
    { "WAIT twice at once",
      { { SAYS(0, WAIT_A WAIT_A), REFUSED("WAIT: waits while it is waiting") } } },
    { "CANCEL_WAIT of a wait, of none, and of one that has ended",
      { { SAYS(0, WAIT_A CANCEL), GETS(0, "\x01") },
        { SAYS(1, SET_A1) },
        { SAYS(0, CANCEL), GETS(0, "\x01") },
        { SAYS(0, "\x06" N("\x01") N("\x01") "b") },
        { SAYS(1, "\x01" N("\x01") "b" N("\x00")), GETS(0, "\x00") },
        { SAYS(0, CANCEL GET_A), GETS(0, "\x01" N("\x01") "1") } } },
    { "GETNUMKEYS, DELETE_KEY",
      { { SAYS(0, SET_A1 "\x04" N("\x05") "init/" N("\x01") "\x07"),
          GETS(0, N("\x01") N("\x02")) },
        { SAYS(1, "\x08" N("\x02") "/a"), GETS(1, N("\x01")) },
        { SAYS(1, "\x08" N("\x02") "/a"), GETS(1, N("\x00")) },
        { SAYS(1, "\x07"), GETS(1, N("\x01")) } } },
    { "APPEND",
      { { SAYS(0, "\x09" N("\x01") "k" N("\x02") "ab") },
        { SAYS(1, "\x09" N("\x01") "k" N("\x02") "cd"
                                                 "\x09" N("\x01") "k" N("\x00")) },
        { SAYS(0, "\x03" N("\x01") "k"), GETS(0, N("\x04") "abcd") } } },
    { "MULTI_SET, MULTI_GET",
      { { SAYS(0,
               "\x0b" N("\x02") N("\x01") "x" N("\x02") "11" N("\x01") "y" N("\x00")) },
        { SAYS(1, "\x0a" N("\x03") N("\x01") "x" N("\x01") "z" N("\x01") "x"),
          GETS(1, N("\x02") "11" N("\x00") N("\x02") "11") },
        { SAYS(1, "\x0b" N("\x00") "\x0a" N("\x00") "\x07"), GETS(1, N("\x02")) } } },
    { "PING", { { SAYS(0, "\x0d\xff\x00\x01\x02"), GETS(0, "\xff\x00\x01\x02") } } },
    { "QUEUE_PUSH, QUEUE_LEN, QUEUE_POP",
      { { SAYS(0, "\x0e" N("\x01") "q" N("\x01") "1"
                                                 "\x0e" N("\x01") "q" N("\x00")) },
        { SAYS(1, "\x10" N("\x01") "q"), GETS(1, N("\x02")) },
        { SAYS(1, "\x0f" N("\x01") "q"), GETS(1, N("\x02") N("\x01") "1") },
        { SAYS(0, "\x0f" N("\x01") "q"), GETS(0, N("\x01") N("\x00")) },
        { SAYS(0, "\x0f" N("\x01") "q"
                                   "\x10" N("\x01") "q"),
          GETS(0, N("\x00") N("\x00")) } } },
    { "a queue is there for CHECK and WAIT, and not for the rest",
      { { SAYS(0, "\x0e" N("\x02") "/a" N("\x01") "1" WAIT_A "\x05" N("\x01")
                      N("\x02") "/a"),
          GETS(0, "\x00\x00") },
        { SAYS(0, GET_A "\x07\x11\x08" N("\x02") "/a"),
          GETS(0, N("\x00") N("\x00") N("\x00") N("\x00")) },
        { SAYS(0, "\x0f" N("\x02") "/a"
                                   "\x05" N("\x01") N("\x02") "/a"),
          GETS(0, N("\x01") N("\x01") "1\x01") } } },
    { "QUEUE_PUSH ends one WAIT, the one that came first",
      { { SAYS(0, WAIT_A) },
        { SAYS(1, WAIT_A) },
        { SAYS(2, "\x0e" N("\x02") "/a" N("\x01") "1"), GETS(0, "\x00") },
        { SAYS(0, "\x0f" N("\x02") "/a"), GETS(0, N("\x01") N("\x01") "1") },
        { SAYS(0, "\x06" N("\x01") N("\x01") "b") },
        { SAYS(2, "\x0e" N("\x02") "/a" N("\x01") "2"), GETS(1, "\x00") },
        { SAYS(2, "\x01" N("\x01") "b" N("\x00")), GETS(0, "\x00") } } },
    { "LIST_KEYS",
      { { SAYS(0, "\x11"), GETS(0, N("\x00")) },
        { SAYS(0, SET_A1 "\x11"), GETS(0, N("\x01") N("\x02") "/a") } } },
    { "BARRIER of three",
      { { SAYS(0, "\x12" N("\x01") "b" N("\x03")) },
        { SAYS(1, "\x12" N("\x01") "b" N("\x03")) },
        { SAYS(2, "\x03" N("\x01") "b"
                                   "\x07"),
          GETS(2, N("\x01") "2" N("\x01")) },
        { SAYS(2, "\x12" N("\x01") "b" N("\x03")), GETS(0, "\x00"), GETS(1, "\x00"),
          GETS(2, "\x00") },
        { SAYS(0, "\x12" N("\x01") "b" N("\x03")), GETS(0, "\x00") } } },
    { "BARRIER: an early arrival wakes nobody, the last one those who wait for the key",
      { { SAYS(0, "\x06" N("\x01") N("\x01") "b") },
        { SAYS(1, "\x12" N("\x01") "b" N("\x02")) },
        { SAYS(2, "\x12" N("\x01") "b" N("\x02")), GETS(0, "\x00"), GETS(1, "\x00"),
          GETS(2, "\x00") } } },
    { "BARRIER: a canceled arrival counts, SET lets those who wait go",
      { { SAYS(0, "\x12" N("\x01") "b" N("\x03") CANCEL), GETS(0, "\x01") },
        { SAYS(1, "\x12" N("\x01") "b" N("\x03")) },
        { SAYS(2, "\x01" N("\x01") "b" N("\x01") "0"), GETS(1, "\x00") },
        { SAYS(2, "\x12" N("\x01") "b" N("\x01")), GETS(2, "\x00") } } },
    { "BARRIER on text that is no number",
      { { SAYS(0, "\x01" N("\x01") "b" N("\x01") "x"
                                                 "\x12" N("\x01") "b" N("\x01")),
          REFUSED("BARRIER: the value is not a number") } } },
    { "a key too long",
      { { SAYS(0, "\x03\x01\x20\0\0\0\0\0\0"),
          REFUSED("GET: a key of 8193 bytes, at most 8192") } } },
    { "a value too long",
      { { SAYS(0, "\x01" N("\x01") "k"
                                   "\x01\0\x80\0\0\0\0\0"),
          REFUSED("SET: a value of 8388609 bytes, at most 8388608") } } },
    { "a negative length",
      { { SAYS(0, "\x0e" MINUS("\xff")),
          REFUSED("QUEUE_PUSH: a key of 18446744073709551615") } } },
    { "too many keys",
      { { SAYS(0, "\x0a\x01\0\x02\0\0\0\0\0"), REFUSED("MULTI_GET: 131073 keys") } } },
    { "too many pairs",
      { { SAYS(0, "\x0b" MINUS("\xff")),
          REFUSED("MULTI_SET: 18446744073709551615") } } },
    { "a long key in the middle of a list",
      { { SAYS(0, "\x0b" N("\x02") N("\x01") "k" N("\x00") "\x01\x20\0\0\0\0\0\0"),
          REFUSED("MULTI_SET: a key of 8193") } } },
};
#define CONVERSATIONS ((int)(sizeof(conversations) / sizeof(conversations[0])))

static void expect_answers(struct tcpstore_world *w, const struct dialogue_step *step,
                           const char *name)
{
    uint8_t got[256];

    for (int i = 0; i < CLIENTS; i++) {
        size_t n = take_answers(w, i, got, sizeof(got));

        ck_assert_msg(n == step->gets[i].size, "%s: client %d gets %zu bytes", name, i,
                      n);
        ck_assert_msg(n == 0 || memcmp(got, step->gets[i].data, n) == 0,
                      "%s: client %d gets other bytes", name, i);
    }
}

/* Pieces of `piece` bytes at most, the first one of `first`. */
static void play_step(struct tcpstore_world *w, const struct dialogue_step *step,
                      const char *name, size_t first, size_t piece)
{
    const char *p = step->says.data;
    size_t left = step->says.size;
    int r = 0;

    while (left > 0 && r == 0) {
        size_t n = first && first < left ? first : piece < left ? piece : left;

        r = feed_client(w, step->client, p, n);
        first = 0;
        p += n;
        left -= n;
    }
    ck_assert_msg((r < 0) == (step->refused != NULL), "%s: %s", name, w->err.text);
    if (step->refused)
        ck_assert_msg(strstr(w->err.text, step->refused), "%s: %s", name, w->err.text);
    else
        expect_answers(w, step, name);
}

/* Step `cut` comes in two parts, the others whole. */
static void play(const struct conversation *c, int cut, size_t first, size_t piece)
{
    struct tcpstore_world *w = tcpstore_world_create(&roomy,
                                                     strncmp(c->name, "hello", 5) != 0);

    for (int i = 0; i < STEPS_MAX && c->step[i].says.size > 0; i++)
        play_step(w, &c->step[i], c->name, i == cut ? first : 0, piece);
    tcpstore_world_destroy(w);
}

TEST_LOOP(a_conversation_goes_as_written, 0, CONVERSATIONS)
{
    play(&conversations[_i], -1, 0, SIZE_MAX);
}

TEST_LOOP(a_conversation_is_the_same_cut_at_every_point, 0, CONVERSATIONS)
{
    const struct conversation *c = &conversations[_i];

    for (int step = 0; step < STEPS_MAX; step++)
        for (size_t at = 1; at < c->step[step].says.size; at++)
            play(c, step, at, SIZE_MAX);
}

TEST_LOOP(a_conversation_is_the_same_in_small_pieces, 0, CONVERSATIONS)
{
    for (size_t piece = 1; piece < 10; piece++)
        play(&conversations[_i], -1, 0, piece);
}

/* One client says all it says in one go: the answers come in the same order. */
TEST_LOOP(requests_of_one_client_can_be_pipelined, 0, CONVERSATIONS)
{
    const struct conversation *c = &conversations[_i];
    uint8_t says[1024], gets[1024], got[1024];
    size_t said = 0, expected = 0;
    struct tcpstore_world *w;

    for (int i = 0; i < STEPS_MAX && c->step[i].says.size > 0; i++) {
        const struct dialogue_step *step = &c->step[i];

        if (step->client != 0 || step->refused)
            return;
        memcpy(says + said, step->says.data, step->says.size);
        said += step->says.size;
        if (step->gets[0].size > 0)
            memcpy(gets + expected, step->gets[0].data, step->gets[0].size);
        expected += step->gets[0].size;
    }
    for (size_t at = 0; at < said; at++) {
        w = tcpstore_world_create(&roomy, strncmp(c->name, "hello", 5) != 0);
        ck_assert_int_eq(feed_client(w, 0, says, at), 0);
        ck_assert_int_eq(feed_client(w, 0, says + at, said - at), 0);
        ck_assert_uint_eq(take_answers(w, 0, got, sizeof(got)), expected);
        ck_assert_mem_eq(got, gets, expected);
        tcpstore_world_destroy(w);
    }
}

TEST(a_client_that_goes_takes_its_waits_along_and_leaves_its_keys)
{
    struct tcpstore_world *w = tcpstore_world_create(&roomy, true);
    static const char waits[] = "\x06" N("\x02") N("\x01") "x" N("\x01") "y";

    ck_assert_int_eq(feed_client(w, 0, SET_A1, sizeof(SET_A1) - 1), 0);
    ck_assert_int_eq(feed_client(w, 0, waits, sizeof(waits) - 1), 0);
    ck_assert_uint_eq(tcpstore_stats(w->tcpstore).store.waits, 2);
    tcpstore_close(w->tcpstore, &w->client[0]);
    ck_assert_uint_eq(tcpstore_stats(w->tcpstore).store.waits, 0);
    ck_assert_uint_eq(tcpstore_stats(w->tcpstore).store.values, 1);
    tcpstore_open(w->tcpstore, &w->client[0]);
    ck_assert_uint_eq(w->answered, 0);
    tcpstore_world_destroy(w);
}
