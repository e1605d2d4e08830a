/* SPDX-License-Identifier: MIT */
/* Which server has answered in place of a rendezvous, by its first bytes. */
#include "rendezvous/wire/protocol/foreign_server.h"

#include <check.h>
#include <string.h>

#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/limits.h"
#include "tests/worlds/check_main.h"

static const struct {
    const char *bytes, *name;
} servers[] = {
    { "HTTP/1.1 400 Bad Request", "an HTTP server" },
    { "<!DOCTYPE HTML>", "an HTTP server" },
    { "<html>", "an HTTP server" },
    { "SSH-2.0-OpenSSH_9.2p1", "an ssh server" },
    { "\x15\x03\x03", "a TLS server" },
    { "220 mail ready", "a mail or FTP server" },
    { "HTT", NULL },
    { "", NULL },
    { "\x50\x01", NULL },
};

TEST_EACH(a_server_is_known_by_its_first_bytes, servers)
{
    ck_assert_pstr_eq(foreign_server_name(servers[_i].bytes, strlen(servers[_i].bytes)),
                      servers[_i].name);
}

/* WELCOME and REFUSED, of any length that a frame may have. */
TEST(no_frame_looks_like_another_server)
{
    for (uint32_t size = 2; size <= FRAME_BODY_MAX; size++) {
        struct frame_header h = { .body_size = size, .type = 50 };
        uint8_t frame[FRAME_HEADER_SIZE];

        frame_put_header(&h, frame);
        ck_assert_ptr_null(foreign_server_name(frame, sizeof(frame)));
    }
}
