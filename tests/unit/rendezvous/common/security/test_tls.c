/* SPDX-License-Identifier: MIT */
/* Sessions against each other, and against bare bytes. */
#include "tests/worlds/tls_world.h"

/* -- keys ------------------------------------------------------------------------- */

FIXTURE(set_up, tear_down);

TEST(ends_with_the_same_key_understand_each_other)
{
    struct tls_session *c = connect_with(&right), *s = accept_one();
    char text[16] = "";

    ck_assert_str_eq(tls_identity(s), "");
    shake_well(c, s);
    ck_assert_str_eq(tls_identity(s), right.identity);
    ck_assert_int_eq(tls_failure(s), TLS_FAILURE_NONE);
    ck_assert_int_eq(tls_write(c, "to here", 8), 8);
    ck_assert_int_eq(tls_read(s, text, sizeof(text)), 8);
    ck_assert_str_eq(text, "to here");
    ck_assert_int_eq(tls_write(s, "back", 5), 5);
    ck_assert_int_eq(tls_read(c, text, 2), 2);
    ck_assert(tls_pending(c));
    ck_assert_int_eq(tls_read(c, text + 2, sizeof(text) - 2), 3);
    ck_assert_str_eq(text, "back");
    ck_assert(!tls_pending(c));
    ck_assert_int_eq(tls_read(c, text, sizeof(text)), -1);
    ck_assert_int_eq(errno, EAGAIN);
    tls_shut(c);
    ck_assert_int_eq(tls_read(s, text, sizeof(text)), 0);
    tls_destroy(c);
    tls_destroy(s);
}

/* The bytes with which a server answers a client that has this key. */
static size_t refuse(const struct tls_psk *psk, uint8_t *answer, size_t size)
{
    struct tls_session *c, *s;
    ssize_t n;

    close(peer);
    close(here);
    open_pair();
    c = connect_with(psk);
    s = accept_one();
    ck_assert_int_eq(tls_handshake(c), 0);
    ck_assert_int_eq(tls_handshake(s), -1);
    ck_assert_int_eq(tls_failure(s), TLS_FAILURE_KEY);
    ck_assert_str_eq(tls_why(s), "the keys differ");
    ck_assert_str_eq(tls_identity(s), psk->identity);
    n = recv(peer, answer, size, MSG_PEEK);
    ck_assert_int_gt(n, 0);
    ck_assert_int_eq(tls_handshake(c), -1);
    ck_assert_int_eq(tls_failure(c), TLS_FAILURE_KEY);
    ck_assert_str_eq(tls_why(c), "the keys differ");
    ck_assert_int_eq(tls_handshake(c), -1);
    ck_assert_int_eq(tls_write(c, "x", 1), -1);
    ck_assert_int_eq(errno, EPROTO);
    tls_destroy(c);
    tls_destroy(s);
    return (size_t)n;
}

TEST(an_unknown_identity_and_a_wrong_key_look_the_same)
{
    struct tls_psk wrong = right, unknown = right, longest = right;
    uint8_t first[512], second[512];
    size_t n;

    wrong.secret[31] ^= 1;
    unknown.identity[6] = 'f';
    memset(longest.identity, 'x', TLS_IDENTITY_MAX);
    n = refuse(&wrong, first, sizeof(first));
    ck_assert_uint_eq(refuse(&unknown, second, sizeof(second)), n);
    ck_assert_mem_eq(first, second, n);
    ck_assert_uint_eq(refuse(&longest, second, sizeof(second)), n);
    ck_assert_mem_eq(first, second, n);
}

/* -- bytes ------------------------------------------------------------------------ */

static void expect_refusal_of(const void *data, size_t size, enum tls_failure failure)
{
    struct tls_session *s = accept_one();
    size_t sent = 0;
    int rc = 0;

    while (rc == 0 && sent < size) {
        ssize_t n = send(peer, (const char *)data + sent, size - sent, MSG_NOSIGNAL);

        ck_assert_int_gt(n, 0);
        sent += (size_t)n;
        rc = tls_handshake(s);
    }
    ck_assert_int_eq(rc, -1);
    ck_assert_msg(tls_failure(s) == failure, "%d: %s", tls_failure(s), tls_why(s));
    ck_assert_str_ne(tls_why(s), "");
    tls_destroy(s);
}

TEST(plain_bytes_are_refused)
{
    expect_refusal_of("CRUN\1\0\0\0 and so on", 18, TLS_FAILURE_PROTOCOL);
}

TEST(an_http_request_is_refused)
{
    expect_refusal_of("GET / HTTP/1.1\r\n\r\n", 18, TLS_FAILURE_PROTOCOL);
}

TEST(a_hello_of_64_kib_is_refused_unread)
{
    uint8_t hello[1 << 16] = { 0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff };
    int left;

    expect_refusal_of(hello, 5 + 0x4000, TLS_FAILURE_SIZE);
    ck_assert_int_eq(ioctl(here, FIONREAD, &left), 0);
    ck_assert_int_eq(left, 5 + 0x4000); /* all that was sent */
}

TEST(a_hello_in_two_records_is_refused_unread)
{
    static const uint8_t hello[] = { 0x16, 3, 1, 0, 5, 1, 0, 0, 9, 3, 3 };

    expect_refusal_of(hello, sizeof(hello), TLS_FAILURE_PROTOCOL);
}

/* Nothing of it is taken before, and a socket with a part of it is not readable. */
TEST(a_hello_waits_in_the_socket_until_it_is_whole)
{
    uint8_t hello[1000] = {
        0x16, 3, 1, 995 >> 8, 995 & 0xff, 1, 0, 991 >> 8, 991 & 0xff
    };
    struct tls_session *s = accept_one();
    int left, lowest;
    socklen_t size = sizeof(lowest);

    for (size_t i = 0; i < sizeof(hello) - 1; i += 111) {
        ck_assert_int_eq(send(peer, hello + i, 111, 0), 111);
        ck_assert_int_eq(tls_handshake(s), 0);
    }
    ck_assert_int_eq(ioctl(here, FIONREAD, &left), 0);
    ck_assert_int_eq(left, 999);
    ck_assert_int_eq(getsockopt(here, SOL_SOCKET, SO_RCVLOWAT, &lowest, &size), 0);
    ck_assert_int_eq(lowest, 1000);
    ck_assert_int_eq(send(peer, hello, 1, 0), 1);
    ck_assert_int_eq(tls_handshake(s), -1);
    ck_assert_int_eq(getsockopt(here, SOL_SOCKET, SO_RCVLOWAT, &lowest, &size), 0);
    ck_assert_int_eq(lowest, 1);
    tls_destroy(s);
}

TEST(a_client_takes_4_kib_before_the_key_is_shown)
{
    uint8_t answer[16384] = { 0x16, 3, 3, 0x3f, 0, 2, 0, 0x3e, 0xfc };
    struct tls_session *c = connect_with(&right);
    int left;

    ck_assert_int_eq(send(here, answer, sizeof(answer), 0), sizeof(answer));
    ck_assert_int_eq(tls_handshake(c), -1);
    ck_assert_int_eq(tls_failure(c), TLS_FAILURE_SIZE);
    ck_assert_int_eq(ioctl(peer, FIONREAD, &left), 0);
    ck_assert_int_eq((int)sizeof(answer) - left, TLS_HANDSHAKE_BYTES_MAX);
    tls_destroy(c);
}

TEST(sixteen_kib_of_alerts_are_refused)
{
    uint8_t alerts[16384];
    static const uint8_t warning[] = { 0x15, 3, 3, 0, 2, 1, 90 };

    for (size_t i = 0; i < sizeof(alerts); i++)
        alerts[i] = warning[i % sizeof(warning)];
    expect_refusal_of(alerts, sizeof(alerts), TLS_FAILURE_PROTOCOL);
}

TEST(fake_changes_of_cipher_without_end_are_refused)
{
    uint8_t records[16384];
    static const uint8_t change[] = { 0x14, 3, 3, 0, 1, 1 };

    for (size_t i = 0; i < sizeof(records); i++)
        records[i] = change[i % sizeof(change)];
    expect_refusal_of(records, sizeof(records), TLS_FAILURE_PROTOCOL);
}

/* -- the wire, byte by byte ------------------------------------------------------- */

struct wire {
    int client[2], server[2]; /* [1] is in the middle */
    struct tls_session *c, *s;
    uint8_t data[2][8192]; /* from the client, from the server */
    size_t size[2];
};

static void wire_open(struct wire *w)
{
    struct err e;

    memset(w->size, 0, sizeof(w->size));
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, w->client), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, w->server), 0);
    w->c = tls_connect(w->client[0], &right, &e);
    w->s = tls_accept(door, w->server[0]);
    ck_assert(w->c && w->s);
}

static void wire_close(struct wire *w)
{
    tls_destroy(w->c);
    tls_destroy(w->s);
    for (int i = 0; i < 2; i++) {
        if (w->client[i] >= 0)
            close(w->client[i]);
        if (w->server[i] >= 0)
            close(w->server[i]);
    }
}

/* Pass on what came, in pieces, up to `limit` bytes of that direction. After each piece
 * its receiver looks. */
static bool wire_pass(struct wire *w, int way, size_t piece, size_t limit, int *rc)
{
    int from = way == 0 ? w->client[1] : w->server[1];
    int to = way == 0 ? w->server[1] : w->client[1];
    struct tls_session *receiver = way == 0 ? w->s : w->c;
    bool any = false;

    while (w->size[way] < limit) {
        size_t want = limit - w->size[way] < piece ? limit - w->size[way] : piece;
        uint8_t *at = w->data[way] + w->size[way];
        ssize_t n = recv(from, at, want, 0);

        if (n <= 0)
            break;
        any = true;
        w->size[way] += (size_t)n;
        ck_assert_int_eq(send(to, at, (size_t)n, MSG_NOSIGNAL), n);
        if (*rc == 0)
            *rc = tls_handshake(receiver);
    }
    return any;
}

/* A handshake over the wire; what each end came to. */
static void wire_shake(struct wire *w, size_t piece, const size_t limit[2], int rc[2])
{
    bool any;

    rc[0] = tls_handshake(w->c);
    rc[1] = tls_handshake(w->s);
    do {
        any = wire_pass(w, 0, piece, limit[0], &rc[1]);
        any |= wire_pass(w, 1, piece, limit[1], &rc[0]);
    } while (any);
}

TEST(a_handshake_may_come_byte_by_byte)
{
    struct wire w;
    int rc[2];

    wire_open(&w);
    wire_shake(&w, 1, (size_t[]){ sizeof(w.data[0]), sizeof(w.data[1]) }, rc);
    ck_assert_int_eq(rc[0], 1);
    ck_assert_int_eq(rc[1], 1);
    wire_close(&w);
}

static void cut_at_every_byte(int way)
{
    size_t whole, limit[2] = { 8192, 8192 };
    struct wire w;
    int rc[2];

    wire_open(&w);
    wire_shake(&w, 8192, limit, rc);
    whole = w.size[way];
    ck_assert_uint_gt(whole, 100);
    wire_close(&w);
    for (size_t cut = 0; cut < whole; cut++) {
        int *to, *end = &rc[1 - way];
        struct tls_session *receiver;

        wire_open(&w);
        limit[way] = cut;
        wire_shake(&w, 8192, limit, rc);
        ck_assert_int_eq(*end, 0);
        to = way == 0 ? &w.server[1] : &w.client[1];
        receiver = way == 0 ? w.s : w.c;
        close(*to);
        *to = -1;
        ck_assert_int_eq(tls_handshake(receiver), -1);
        ck_assert_msg(tls_failure(receiver) == TLS_FAILURE_CLOSED, "%zu: %s", cut,
                      tls_why(receiver));
        wire_close(&w);
    }
}

TEST(a_client_cut_at_any_byte_is_not_let_in)
{
    cut_at_every_byte(0);
}

TEST(a_server_cut_at_any_byte_is_not_believed)
{
    cut_at_every_byte(1);
}

/* of the client's hello, which names the key and shows it */
TEST(no_byte_of_a_hello_may_be_changed)
{
    struct wire w;
    uint8_t hello[8192];
    ssize_t size;

    wire_open(&w);
    ck_assert_int_eq(tls_handshake(w.c), 0);
    size = recv(w.client[1], hello, sizeof(hello), MSG_PEEK);
    wire_close(&w);
    for (ssize_t at = 0; at < size; at++) {
        int rc[2];

        wire_open(&w);
        rc[0] = tls_handshake(w.c);
        ck_assert_int_eq(recv(w.client[1], hello, sizeof(hello), 0), size);
        hello[at] ^= 1;
        ck_assert_int_eq(send(w.server[1], hello, (size_t)size, 0), size);
        rc[1] = tls_handshake(w.s);
        wire_pass(&w, 1, 8192, 8192, &rc[0]);
        wire_pass(&w, 0, 8192, 8192, &rc[1]);
        /* the minor version in a record's header is ignored, and says nothing */
        if (at != 2)
            ck_assert_msg(rc[1] != 1, "byte %zd", at);
        wire_close(&w);
    }
}

TEST(a_client_does_not_believe_its_own_bytes)
{
    struct wire w;
    uint8_t hello[8192];
    ssize_t size;

    wire_open(&w);
    ck_assert_int_eq(tls_handshake(w.c), 0);
    size = recv(w.client[1], hello, sizeof(hello), 0);
    ck_assert_int_eq(send(w.client[1], hello, (size_t)size, 0), size);
    ck_assert_int_eq(tls_handshake(w.c), -1);
    ck_assert_int_eq(tls_failure(w.c), TLS_FAILURE_PROTOCOL);
    wire_close(&w);
}

/* -- a session -------------------------------------------------------------------- */

TEST(an_end_without_a_word_is_not_good_order)
{
    struct tls_session *c = connect_with(&right), *s = accept_one();
    char byte;

    shake_well(c, s);
    shutdown(peer, SHUT_WR);
    ck_assert_int_eq(tls_read(s, &byte, 1), -1);
    ck_assert_int_eq(errno, ECONNRESET);
    ck_assert_int_eq(tls_failure(s), TLS_FAILURE_CLOSED);
    tls_destroy(c);
    tls_destroy(s);
}

TEST(a_changed_byte_ends_the_session)
{
    struct wire w;
    int rc[2];
    uint8_t record[64];
    char byte;
    ssize_t n;

    wire_open(&w);
    wire_shake(&w, 8192, (size_t[]){ 8192, 8192 }, rc);
    ck_assert_int_eq(rc[1], 1);
    ck_assert_int_eq(tls_write(w.c, "x", 1), 1);
    n = recv(w.client[1], record, sizeof(record), 0);
    ck_assert_int_gt(n, 10);
    record[n - 1] ^= 0x80;
    ck_assert_int_eq(send(w.server[1], record, (size_t)n, 0), n);
    ck_assert_int_eq(tls_read(w.s, &byte, 1), -1);
    ck_assert_int_eq(errno, EPROTO);
    ck_assert_int_eq(tls_failure(w.s), TLS_FAILURE_PROTOCOL);
    wire_close(&w);
}

TEST(a_full_socket_is_waited_for)
{
    static uint8_t data[1 << 20], got[1 << 20];
    struct tls_session *c = connect_with(&right), *s = accept_one();
    size_t sent = 0, received = 0;
    bool waited = false;

    shake_well(c, s);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 7 + i / 256);
    while (received < sizeof(data)) {
        ssize_t n = tls_write(c, data + sent, sizeof(data) - sent);

        if (n > 0) {
            sent += (size_t)n;
            ck_assert(!tls_wants_write(c));
            continue;
        }
        if (sent < sizeof(data)) {
            ck_assert_int_eq(errno, EAGAIN);
            ck_assert(tls_wants_write(c));
            waited = true;
        }
        while ((n = tls_read(s, got + received, sizeof(got) - received)) > 0)
            received += (size_t)n;
    }
    ck_assert(waited);
    ck_assert_mem_eq(data, got, sizeof(data));
    tls_destroy(c);
    tls_destroy(s);
}

TEST(a_peer_that_is_gone_gives_an_error_and_no_signal)
{
    struct tls_session *c = connect_with(&right), *s = accept_one();
    ssize_t n;

    shake_well(c, s);
    tls_destroy(s);
    close(here);
    here = -1;
    n = tls_write(c, "x", 1);
    ck_assert_int_eq(n, -1);
    ck_assert_int_eq(errno, EPIPE);
    tls_shut(c);
    tls_destroy(c);
}

static void *read_elsewhere(void *arg)
{
    char text[8] = "";

    ck_assert_int_eq(tls_read(arg, text, sizeof(text)), 3);
    ck_assert_str_eq(text, "go");
    ck_assert_int_eq(tls_write(arg, "on", 3), 3);
    return NULL;
}

TEST(a_session_moves_between_threads)
{
    struct tls_session *c = connect_with(&right), *s = accept_one();
    pthread_t thread;
    char text[8];

    shake_well(c, s);
    ck_assert_int_eq(tls_write(c, "go", 3), 3);
    ck_assert_int_eq(pthread_create(&thread, NULL, read_elsewhere, s), 0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(tls_read(c, text, sizeof(text)), 3);
    ck_assert_str_eq(text, "on");
    tls_destroy(c);
    tls_destroy(s);
}

TEST(a_session_outlives_the_door)
{
    struct tls_session *c = connect_with(&right), *s = accept_one();
    char byte;

    shake_well(c, s);
    tls_door_destroy(door);
    door = NULL;
    ck_assert_int_eq(tls_write(c, "x", 1), 1);
    ck_assert_int_eq(tls_read(s, &byte, 1), 1);
    tls_destroy(c);
    tls_destroy(s);
}

/* -- loading ---------------------------------------------------------------------- */

TEST(a_missing_library_is_named)
{
    static const char *const names[] = { "libssl-none.so.1", "libssl-none.so.2", NULL };
    struct openssl o;
    struct err e;

    ck_assert_int_eq(openssl_open(&o, names, &e), -1);
    ck_assert_msg(strstr(e.text, "cannot load OpenSSL (libssl-none.so.1: "), "%s",
                  e.text);
    ck_assert_msg(strstr(e.text, "keys need OpenSSL 1.1.1 or later"), "%s", e.text);
}

TEST(a_library_without_tls_1_3_is_too_old)
{
    static const char *const names[] = { "libssl-none.so.1", "libm.so.6", NULL };
    struct openssl o;
    struct err e;

    ck_assert_int_eq(openssl_open(&o, names, &e), -1);
    ck_assert_str_eq(e.text, "libm.so.6 is too old (it has no OPENSSL_init_ssl): keys "
                             "need OpenSSL 1.1.1 or later");
}
