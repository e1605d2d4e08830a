/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/security/tls.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/security/limits.h"
#include "rendezvous/common/security/openssl.h"
#include "tests/worlds/check_main.h"

/* Two ends of a socket pair, of which `here` takes the sessions of a door. */
static struct tls_door *door;
static struct tls_psk right;
static int peer, here; /* two ends of a socket pair */

static inline bool find_key(void *arg, const char *identity,
                            uint8_t secret[TLS_SECRET_BYTES])
{
    if (strcmp(identity, right.identity) != 0)
        return false;
    memcpy(secret, right.secret, TLS_SECRET_BYTES);
    return true;
}

static inline void open_pair(void)
{
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    peer = pair[0];
    here = pair[1];
}

static inline void set_up(void)
{
    struct err e;

    strcpy(right.identity, "crun1:0123456789abcdef:agent:0");
    memset(right.secret, 0x42, sizeof(right.secret));
    door = tls_door_create(find_key, NULL, &e);
    ck_assert_msg(door, "%s", e.text);
    open_pair();
}

static inline void tear_down(void)
{
    close(peer);
    close(here);
    tls_door_destroy(door);
}

static inline struct tls_session *connect_with(const struct tls_psk *psk)
{
    struct err e;
    struct tls_session *s = tls_connect(peer, psk, &e);

    ck_assert_msg(s, "%s", e.text);
    return s;
}

static inline struct tls_session *accept_one(void)
{
    struct tls_session *s = tls_accept(door, here);

    ck_assert_ptr_nonnull(s);
    return s;
}

/* Both ends in turn, until neither can go on. */
static inline void shake(struct tls_session *c, struct tls_session *s, int *c_rc,
                         int *s_rc)
{
    *c_rc = *s_rc = 0;
    for (int i = 0; i < 10; i++) {
        if (*c_rc == 0)
            *c_rc = tls_handshake(c);
        if (*s_rc == 0)
            *s_rc = tls_handshake(s);
    }
}

static inline void shake_well(struct tls_session *c, struct tls_session *s)
{
    int c_rc, s_rc;

    shake(c, s, &c_rc, &s_rc);
    ck_assert_int_eq(c_rc, 1);
    ck_assert_int_eq(s_rc, 1);
}
