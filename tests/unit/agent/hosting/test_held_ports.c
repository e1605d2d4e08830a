/* SPDX-License-Identifier: MIT */
#include "agent/hosting/held_ports.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/net.h"
#include "tests/worlds/check_main.h"

static struct held_ports held;
static char text[FREE_PORTS_MAX_BYTES + 1];

/* As a program that is not a server asks for it. */
static bool is_free(unsigned port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound = bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0;

    close(fd);
    return bound;
}

TEST(ports_are_held_for_servers_and_are_others_in_each_epoch)
{
    static const char names[FREE_PORTS_MAX][FREE_PORT_NAME_MAX + 1] = { "api", "d" };
    unsigned first[3], second[3];
    struct err e;
    int fd;

    held_ports_renew(&held, names, text, sizeof(text));
    ck_assert_int_eq(sscanf(text, "=%u api=%u d=%u", &first[0], &first[1], &first[2]),
                     3);
    ck_assert_uint_ne(first[0], first[1]);
    ck_assert_uint_ne(first[1], first[2]);
    for (int i = 0; i < 3; i++) {
        ck_assert(!is_free(first[i]));
        fd = net_listen_everywhere((uint16_t)first[i], 1, &e);
        ck_assert_msg(fd >= 0, "%s", e.text);
        close(fd);
    }
    held_ports_renew(&held, names, text, sizeof(text));
    ck_assert_int_eq(
        sscanf(text, "=%u api=%u d=%u", &second[0], &second[1], &second[2]), 3);
    for (int i = 0; i < 9; i++)
        ck_assert_uint_ne(first[i / 3], second[i % 3]);
    for (int i = 0; i < 3; i++)
        ck_assert(is_free(first[i]) && !is_free(second[i]));
    held_ports_close(&held);
    ck_assert(is_free(second[0]) && is_free(second[2]));
}

TEST(all_names_of_full_length_have_room)
{
    char names[FREE_PORTS_MAX][FREE_PORT_NAME_MAX + 1];

    for (int i = 0; i < FREE_PORTS_MAX; i++)
        snprintf(names[i], sizeof(names[i]), "%032d", i);
    held_ports_renew(&held, names, text, sizeof(text));
    ck_assert_uint_eq(held.count, 1 + FREE_PORTS_MAX);
    ck_assert_ptr_nonnull(strstr(text, " 00000000000000000000000000000015="));
    ck_assert_uint_gt(strcspn(strrchr(text, '=') + 1, " "), 3); /* whole */
    held_ports_close(&held);
}
