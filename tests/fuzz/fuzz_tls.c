/* SPDX-License-Identifier: MIT */
/*
 * What a peer without the key may send to the TLS door, over a socket pair.
 *
 * The first byte chooses what the rest is: the peer's first bytes; changes of a real
 * hello (offset, 2 bytes, and what to flip); what follows a real hello; or what follows
 * a whole handshake. The second byte says how many bytes come at a time. The door must
 * never take such a peer for one that has the key.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/security/tls.h"

enum { FUZZ_FIRST_BYTES, FUZZ_CHANGED_HELLO, FUZZ_SECOND_FLIGHT, FUZZ_DATA, FUZZ_WAYS };

static struct tls_door *door;
static const struct tls_psk key = { .identity = "crun1:0123456789abcdef:agent:0" };

static void check_tls(int holds)
{
    if (!holds)
        abort();
}

static bool find_key(void *arg, const char *identity, uint8_t secret[TLS_SECRET_BYTES])
{
    check_tls(strlen(identity) <= TLS_IDENTITY_MAX);
    memcpy(secret, key.secret, TLS_SECRET_BYTES);
    return strcmp(identity, key.identity) == 0;
}

/* Whether the hello says what it said: the version of its record's header says nothing.
 */
static bool change_hello(uint8_t *hello, size_t size, const uint8_t *data, size_t n)
{
    uint8_t before[4096];
    bool same;

    memcpy(before, hello, size);
    for (; n >= 3; data += 3, n -= 3)
        hello[(data[0] << 8 | data[1]) % size] ^= data[2];
    before[2] = hello[2];
    same = memcmp(before, hello, size) == 0;
    return same;
}

static void take_all(struct tls_session *s, int *rc)
{
    uint8_t data[512];
    ssize_t n;

    if (*rc == 0)
        *rc = tls_handshake(s);
    if (*rc != 1)
        return;
    do {
        n = tls_read(s, data, sizeof(data));
        check_tls(n <= (ssize_t)sizeof(data));
    } while (n > 0);
    if (n == 0 || errno != EAGAIN)
        *rc = -1;
}

static void forward_all(int from, int to)
{
    uint8_t data[4096];
    ssize_t n = recv(from, data, sizeof(data), MSG_DONTWAIT);

    check_tls(n > 0 && send(to, data, (size_t)n, MSG_NOSIGNAL) == n);
}

static void send_in_pieces(int fd, struct tls_session *s, const uint8_t *data,
                           size_t size, size_t piece, int *rc)
{
    while (size > 0 && *rc >= 0) {
        size_t n = size < piece ? size : piece;

        if (send(fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
            return;
        data += n;
        size -= n;
        take_all(s, rc);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct err e;

    door = tls_door_create(find_key, NULL, &e);
    check_tls(door != NULL);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int pair[2], middle[2], way, rc = 0;
    struct tls_session *s, *c;
    uint8_t hello[4096];
    size_t piece;
    struct err e;
    ssize_t n;
    bool same = true;

    if (size < 2 || size > 8192)
        return 0;
    way = data[0] % FUZZ_WAYS;
    piece = data[1] ? data[1] : 8192;
    data += 2;
    size -= 2;
    check_tls(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    check_tls(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, middle) == 0);
    s = tls_accept(door, pair[0]);
    c = tls_connect(middle[0], &key, &e);
    check_tls(s && c && tls_handshake(c) == 0);
    n = recv(middle[1], hello, sizeof(hello), 0);
    check_tls(n > 0);
    if (way == FUZZ_CHANGED_HELLO)
        same = change_hello(hello, (size_t)n, data, size);
    if (way != FUZZ_FIRST_BYTES)
        send_in_pieces(pair[1], s, hello, (size_t)n,
                       way == FUZZ_CHANGED_HELLO ? piece : 8192, &rc);
    if (way == FUZZ_DATA) {
        check_tls(rc == 0);
        forward_all(pair[1], middle[1]);
        check_tls(tls_handshake(c) == 1);
        forward_all(middle[1], pair[1]);
        take_all(s, &rc);
        check_tls(rc == 1);
    }
    if (way == FUZZ_CHANGED_HELLO) /* then an answer comes if it is a hello still */
        check_tls(same || rc < 0 || recv(pair[1], hello, 1, MSG_PEEK) < 0);
    else
        send_in_pieces(pair[1], s, data, size, piece, &rc);
    check_tls(way == FUZZ_DATA || rc != 1);
    check_tls(rc >= 0 || way == FUZZ_DATA || tls_failure(s) != TLS_FAILURE_NONE);
    tls_destroy(s);
    tls_destroy(c);
    for (int i = 0; i < 2; i++) {
        close(pair[i]);
        close(middle[i]);
    }
    return 0;
}
