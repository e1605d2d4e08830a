/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/protocol/port_list.h"

#include <check.h>
#include <string.h>

#include "rendezvous/wire/protocol/message.h"
#include "tests/worlds/check_main.h"

static const struct {
    const char *list, *ports; /* those that are read */
} lists[] = {
    { "", "" },
    { "41234", "41234" },
    { "1 65535 20", "1 65535 20" },
    { "  1   2  ", "1 2" },
    { "0 65536 99999 100000 123456789012345678901 7", "7" },
    { "x 5x x5 -5 +5 5. 0x5 6", "6" },
    { "00080", "80" },
};

TEST_EACH(only_ports_are_read, lists)
{
    const char *at = lists[_i].list;
    char text[64] = "";
    uint16_t port;

    while (port_list_next(&at, &port)) {
        ck_assert(port_list_has(lists[_i].list, port));
        port_list_add(text, sizeof(text), port);
    }
    ck_assert_str_eq(text, lists[_i].ports);
    ck_assert(!port_list_has(lists[_i].list, 9));
}

TEST(a_message_has_room_for_all_that_a_question_may_have)
{
    struct msg_owners m = { .ports = "" };

    for (int i = 0; i < OWNERS_PER_ASK; i++)
        port_list_add(m.ports, sizeof(m.ports), (uint16_t)(60000 + i));
    ck_assert(port_list_has(m.ports, 60000 + OWNERS_PER_ASK - 1));
    port_list_add(m.ports, sizeof(m.ports), 1);
    ck_assert(!port_list_has(m.ports, 1));
    ck_assert_uint_eq(strlen(m.ports), OWNERS_PER_ASK * 6 - 1);
}
