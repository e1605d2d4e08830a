/* SPDX-License-Identifier: MIT */
/* The kinds of events, and the table of the manual. Runs in the root of the source. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/events/event_kinds.h"
#include "rendezvous/wire/protocol/proto.h"
#include "tests/worlds/check_main.h"

#define MANUAL "launcher/man/crunctl.1"

TEST(the_manual_has_the_same_table)
{
    static const char *const called[] = { [EVENT_CALL_NEVER] = "no",
                                          [EVENT_CALL_RESTART] = "a restart",
                                          [EVENT_CALL_ALWAYS] = "yes" };
    FILE *f = fopen(MANUAL, "r");
    char *text = NULL, *at;
    size_t size = 0;

    ck_assert_msg(f, MANUAL " cannot be read: is this the root of the source?");
    ck_assert_int_gt(getdelim(&text, &size, '\0', f), 0);
    fclose(f);
    at = strstr(text, ".It Em kind Ta Em called Ta Em meaning\n");
    ck_assert_ptr_nonnull(at);
    at = strchr(at, '\n') + 1;
    for (const struct event_kind *k = event_kinds; k->name; k++) {
        char *row = xasprintf(".It %s Ta %s Ta %s\n", k->name, called[k->call],
                              k->meaning);

        ck_assert_msg(strncmp(at, row, strlen(row)) == 0,
                      MANUAL " must have\n%shere:\n%.80s", row, at);
        at += strlen(row);
        free(row);
    }
    ck_assert_int_eq(strncmp(at, ".El\n", 4), 0);
    free(text);
}

TEST(a_kind_fits_into_a_message_and_is_there_once)
{
    for (const struct event_kind *k = event_kinds; k->name; k++) {
        ck_assert(proto_is_name(k->name));
        ck_assert_uint_lt(strlen(k->name), sizeof(((struct msg_event *)0)->kind));
        ck_assert_ptr_eq(event_kind_find(k->name), k);
    }
    for (int i = 0; i < NOTE_KIND_COUNT; i++)
        ck_assert_ptr_nonnull(event_kind_find(proto_note_name((enum note_kind)i)));
}

TEST(what_an_unknown_kind_tells_is_not_for_all)
{
    ck_assert_ptr_null(event_kind_find("exploded"));
    ck_assert_int_eq(event_kind_access("exploded"), ACCESS_OPERATE);
    ck_assert_int_eq(event_kind_access("joined"), ACCESS_OPERATE);
    ck_assert_int_eq(event_kind_access("refused"), ACCESS_AGENT);
    ck_assert_int_eq(event_kind_access("failed"), ACCESS_VIEW);
}

TEST(failures_restarts_and_ends_call)
{
    struct msg_event event = { .kind = "failed", .epoch = 1 };

    ck_assert(event_kind_calls(&event));
    strcpy(event.kind, "formed");
    ck_assert(!event_kind_calls(&event));
    event.epoch = 2;
    ck_assert(event_kind_calls(&event));
    strcpy(event.kind, "joined");
    ck_assert(!event_kind_calls(&event));
    strcpy(event.kind, "exploded");
    ck_assert(!event_kind_calls(&event));
}

TEST(kinds_are_chosen_by_name)
{
    uint64_t chosen;
    struct err e;

    ck_assert_int_eq(event_kinds_select("waiting,resumed", &chosen, &e), 0);
    ck_assert_uint_eq(chosen, 5);
    ck_assert_int_eq(event_kinds_select("done,all", &chosen, &e), 0);
    ck_assert_uint_eq(chosen, UINT64_MAX);
    ck_assert_int_eq(event_kinds_select("done,falied", &chosen, &e), -1);
    ck_assert_str_eq(e.text, "\"falied\" is no kind of event; did you mean failed?");
    ck_assert_int_eq(event_kinds_select("", &chosen, &e), -1);
    ck_assert_str_eq(e.text, "\"\" is no kind of event (crunctl(1) lists them)");
}
