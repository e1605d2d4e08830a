/* SPDX-License-Identifier: MIT */
/*
 * PROTOCOL.md against the tables: what the author of another implementation reads
 * is what this one does. Runs in the root of the source.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/registry/limits.h"
#include "rendezvous/wire/net/limits.h"
#include "rendezvous/wire/protocol/limits.h"
#include "rendezvous/wire/protocol/message.h"
#include "rendezvous/wire/protocol/proto.h"
#include "rendezvous/wire/protocol/proto_fields.h"
#include "tests/worlds/check_main.h"

#define PROTOCOL "rendezvous/PROTOCOL.md"

static char *text;

static void load(void)
{
    FILE *f = fopen(PROTOCOL, "r");
    size_t size = 0;

    ck_assert_msg(f, PROTOCOL " cannot be read: is this the root of the source?");
    ck_assert_int_gt(getdelim(&text, &size, '\0', f), 0);
    fclose(f);
}

static void unload(void)
{
    free(text);
    text = NULL;
}

/* What stands between a heading and the next. To be freed. */
static char *section(const char *heading)
{
    char *line = xasprintf("\n%s\n", heading), *found = strstr(text, line);
    char *copy, *end;

    ck_assert_msg(found, "%s has no \"%s\"", PROTOCOL, heading);
    copy = xstrdup(found + strlen(line));
    free(line);
    end = strstr(copy, "\n#");
    if (end)
        end[1] = '\0';
    return copy;
}

static unsigned count_rows(const char *in)
{
    unsigned rows = 0;

    for (const char *at = in; (at = strstr(at, "\n| `")); at++)
        rows++;
    return rows;
}

static char *type_of(const struct proto_field *f, char *buf, size_t size)
{
    bool any_u32 = f->min == 0 && f->max == UINT32_MAX;
    bool any_i32 = f->min == INT32_MIN && f->max == INT32_MAX;

    switch (f->kind) {
    case PROTO_U32:
    case PROTO_I32:
        if (any_u32 || any_i32)
            snprintf(buf, size, any_u32 ? "u32" : "i32");
        else
            snprintf(buf, size, "%" PRId64 " to %" PRId64, f->min, f->max);
        break;
    case PROTO_TEXT:
    case PROTO_TAIL:
        snprintf(buf, size, "text %d", f->size - 1);
        break;
    case PROTO_NAME:
        snprintf(buf, size, "name %d", f->size - 1);
        break;
    default:
        snprintf(buf, size, "%s",
                 (const char *const[]){ [PROTO_U64] = "hex64",
                                        [PROTO_ID] = "hex128",
                                        [PROTO_BOOL] = "bool",
                                        [PROTO_ENUM] = "word",
                                        [PROTO_WORD] = "open word",
                                        [PROTO_OBJECT] = "object" }[f->kind]);
        break;
    }
    return buf;
}

static void check_table(const char *heading, const struct proto_table *table);

/* An object has the fields of another message, or a section of its own. */
static void check_object(const char *heading, const struct proto_field *f)
{
    char *name;

    for (unsigned type = 0; type < MSG_TYPE_MAX; type++)
        if (proto_messages[type].body.field == f->object->field)
            return;
    name = xasprintf("### %.*s.%s", (int)strcspn(heading + 4, " "), heading + 4,
                     f->name);
    check_table(name, f->object);
    free(name);
}

/* The row ends with the access that a reader needs, if not every reader is shown it. */
static void check_reader(const char *heading, const char *row,
                         const struct proto_field *f)
{
    char *line = xasprintf("%.*s", (int)strcspn(row, "\n"), row);

    for (unsigned a = ACCESS_VIEW; a < ACCESS_COUNT; a++) {
        char *end = xasprintf(" (access `%s`) |", access_names[a]);

        ck_assert_msg(!strstr(line, end) == (f->least != a), "%s: %s", heading, line);
        free(end);
    }
    free(line);
}

static void check_table(const char *heading, const struct proto_table *table)
{
    char *in = section(heading), type[64];

    for (unsigned i = 0; i < table->count; i++) {
        const struct proto_field *f = &table->field[i];
        char *row = xasprintf("\n| `%s` | %s | %s | ", f->name,
                              type_of(f, type, sizeof(type)),
                              f->required ? "yes" : "no");

        ck_assert_msg(strstr(in, row), "%s has no \"%s\"", heading, row + 1);
        check_reader(heading, strstr(in, row) + 1, f);
        if (f->kind == PROTO_OBJECT)
            check_object(heading, f);
        free(row);
    }
    ck_assert_msg(count_rows(in) == table->count, "%s has fields that do not exist",
                  heading);
    free(in);
}

FIXTURE(load, unload);

TEST_LOOP(every_field_stands_there_as_it_is, 0, MSG_TYPE_MAX)
{
    char *heading;

    if (!proto_name(_i))
        return;
    heading = xasprintf("### %s (%d)", proto_name(_i), _i);
    check_table(heading, &proto_messages[_i].body);
    free(heading);
}

static const char *const phases[PROTO_PHASE_COUNT] = {
    [PROTO_NEW] = "NEW", [PROTO_AGENT] = "AGENT",     [PROTO_JOINED] = "JOINED",
    [PROTO_CTL] = "CTL", [PROTO_REPLICA] = "REPLICA",
};

TEST_LOOP(every_message_names_its_phase_and_access, 0, MSG_TYPE_MAX)
{
    char *heading, *in, *line;

    if (!proto_name(_i))
        return;
    heading = xasprintf("### %s (%d)", proto_name(_i), _i);
    in = section(heading);
    for (unsigned phase = 0; phase < PROTO_PHASE_COUNT; phase++) {
        line = xasprintf("\nTaken in phase %s, access `%s`. ", phases[phase],
                         access_names[proto_least_access(_i)]);
        ck_assert_msg(!strstr(in, line) == !proto_allowed(_i, phase), "%s: %s", heading,
                      line + 1);
        ck_assert(!proto_allowed(_i, phase) || proto_least_access(_i) != ACCESS_NONE);
        free(line);
    }
    free(in);
    free(heading);
}

TEST(every_refusal_is_explained)
{
    char *in = section("## Refusals");

    for (unsigned why = REFUSED_NONE + 1; why < REFUSED_COUNT; why++) {
        char *row = xasprintf("\n| `%s` | ", proto_refusal_name(why));

        ck_assert_msg(strstr(in, row), "%s", row + 1);
        free(row);
    }
    ck_assert_uint_eq(count_rows(in), REFUSED_COUNT - 1 + 1); /* and the heading */
    free(in);
}

TEST(every_kind_of_failure_is_explained)
{
    char *in = section("### FAILED (14)");

    for (unsigned kind = FAILURE_NONE + 1; kind < FAILURE_KIND_COUNT; kind++) {
        char *word = xasprintf("`%s` (", proto_failure_kind_name(kind));

        ck_assert_msg(strstr(in, word), "%s", word);
        free(word);
    }
    free(in);
}

#define LIMIT(name)                                                                    \
    {                                                                                  \
#name, name                                                                    \
    }
static const struct {
    const char *name;
    unsigned long value;
} limits[] = {
    LIMIT(FRAME_BODY_MAX),
    LIMIT(FRAME_BODY_HELLO_MAX),
    LIMIT(JSON_DEPTH_MAX),
    LIMIT(JSON_MEMBERS_MAX),
    LIMIT(NODES_MAX),
    LIMIT(WORKERS_PER_NODE_MAX),
    LIMIT(RESTARTS_MAX),
    LIMIT(LEASE_MS_MIN),
    LIMIT(LEASE_MS_MAX),
    LIMIT(HEARTBEATS_PER_LEASE),
    LIMIT(RECONNECT_GRACE_MS_MAX),
    LIMIT(RECONNECT_DELAY_MS_MIN),
    LIMIT(RECONNECT_DELAY_MS_MAX),
    LIMIT(HELLO_DEADLINE_MS),
    LIMIT(FRAME_DEADLINE_MS),
    LIMIT(SEND_DEADLINE_MS),
    LIMIT(CONTROL_OUT_MAX),
    LIMIT(JOBS_MAX),
    LIMIT(JOBS_PER_SOURCE_MAX),
    LIMIT(NODES_PER_SOURCE_MAX),
    LIMIT(EVENTS_KEPT),
    LIMIT(NOTES_PER_EPOCH_MAX),
    LIMIT(STATUS_PER_PAGE),
    LIMIT(STACKS_DEADLINE_MS),
    LIMIT(STACKS_ASKS_MAX),
    LIMIT(LOGS_RANKS_PER_ASK),
    LIMIT(LOGS_PIECE_MAX),
    LIMIT(LOGS_WAIT_MS_MAX),
    LIMIT(LOGS_DEADLINE_MS),
    LIMIT(LOGS_ASKS_MAX),
    LIMIT(LOGS_PIECES_MAX),
    LIMIT(OWNERS_PER_ASK),
    LIMIT(OWNERS_DEADLINE_MS),
    LIMIT(OWNERS_ASKS_MAX),
};
#define LIMIT_COUNT (sizeof(limits) / sizeof(limits[0]))

TEST(the_limits_are_those_in_force)
{
    char *in = section("## Limits");

    for (size_t i = 0; i < LIMIT_COUNT; i++) {
        char *row = xasprintf("\n| `%s` | %lu |\n", limits[i].name, limits[i].value);

        ck_assert_msg(strstr(in, row), "%s", row + 1);
        free(row);
    }
    ck_assert_uint_eq(count_rows(in), LIMIT_COUNT);
    free(in);
}
