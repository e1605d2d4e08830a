/* SPDX-License-Identifier: MIT */
/*
 * Bodies that are wrong: every field of every message spoilt in turn, and every way not
 * to be JSON. The fields come from the tables, so a new one is tested from its first
 * day.
 */
#include "rendezvous/wire/protocol/proto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "rendezvous/wire/protocol/frame.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/proto_fill.h"

#define BODY_AT FRAME_HEADER_SIZE

static uint8_t frame[FRAME_HEADER_SIZE + FRAME_BODY_MAX];
static struct msg in, out;
static struct err e;

static int decode(unsigned type, const char *body)
{
    return proto_decode_exactly(type, body, strlen(body), &out, &e);
}

/* -- every field, wrong ----------------------------------------------------- */

/* The body of a message, all fields given, as a tree to be spoilt. */
static cJSON *tree_of(unsigned type)
{
    proto_fill(&in, type, PROTO_FILL_TYPICAL);
    size_t size = proto_encode(&in, frame, sizeof(frame)) - FRAME_HEADER_SIZE;

    return cJSON_ParseWithLength((char *)frame + BODY_AT, size);
}

static int decode_tree(unsigned type, const cJSON *tree)
{
    char *body = cJSON_PrintUnformatted(tree);
    int result = decode(type, body);

    free(body);
    return result;
}

/* Put value in the place of the field, see what becomes of the message, put it back. */
static void spoil(unsigned type, const cJSON *tree, cJSON *object,
                  const struct proto_field *f, cJSON *value, bool ok)
{
    cJSON *right = cJSON_Duplicate(cJSON_GetObjectItem(object, f->name), 1);
    char *shown = cJSON_PrintUnformatted(value);

    cJSON_ReplaceItemInObjectCaseSensitive(object, f->name, value);
    ck_assert_msg((decode_tree(type, tree) == 0) == ok, "%s: %s: %s: %s",
                  proto_name(type), f->name, shown, e.text);
    ck_assert_msg(ok || strstr(e.text, f->name), "%s does not name %s", e.text,
                  f->name);
    cJSON_ReplaceItemInObjectCaseSensitive(object, f->name, right);
    free(shown);
}

static void spoil_text(unsigned type, const cJSON *tree, cJSON *object,
                       const struct proto_field *f, const char *text, bool ok)
{
    spoil(type, tree, object, f, cJSON_CreateString(text), ok);
}

static void spoil_type(unsigned type, const cJSON *tree, cJSON *object,
                       const struct proto_field *f)
{
    bool number = f->kind == PROTO_U32 || f->kind == PROTO_I32;

    spoil(type, tree, object, f, cJSON_CreateNull(), false);
    spoil(type, tree, object, f, cJSON_CreateArray(), false);
    if (!number)
        spoil(type, tree, object, f, cJSON_CreateNumber(1), false);
    if (f->kind != PROTO_BOOL)
        spoil(type, tree, object, f, cJSON_CreateBool(1), false);
    if (f->kind != PROTO_OBJECT)
        spoil(type, tree, object, f, cJSON_CreateObject(), false);
    if (number || f->kind == PROTO_BOOL || f->kind == PROTO_OBJECT)
        spoil_text(type, tree, object, f, "1", false);
}

static void spoil_number(unsigned type, const cJSON *tree, cJSON *object,
                         const struct proto_field *f)
{
    const struct {
        double value;
        bool ok;
    } cases[] = {
        { (double)f->min, true },
        { (double)f->max, true },
        { (double)f->min - 1, false },
        { (double)f->max + 1, false },
        { (double)f->max - 0.5, false },
        { 1e300, false },
        { -1e300, false },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        spoil(type, tree, object, f, cJSON_CreateNumber(cases[i].value), cases[i].ok);
    spoil(type, tree, object, f, cJSON_CreateRaw("1e999"), false);
}

static void spoil_hex(unsigned type, const cJSON *tree, cJSON *object,
                      const struct proto_field *f)
{
    bool is_id = f->kind == PROTO_ID;

    spoil_text(type, tree, object, f, "", false);
    spoil_text(type, tree, object, f, "0", !is_id);
    spoil_text(type, tree, object, f, "ffffffffffffffff", !is_id);
    spoil_text(type, tree, object, f, "10000000000000000", false);
    spoil_text(type, tree, object, f, "ffffffffffffffffffffffffffffffff", is_id);
    spoil_text(type, tree, object, f, "ffffffffffffffffffffffffffffffff0", false);
    spoil_text(type, tree, object, f, "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", false);
    spoil_text(type, tree, object, f, "ffffffffffffffffffffffffffffffg", false);
    spoil_text(type, tree, object, f, "0x1", false);
    spoil_text(type, tree, object, f, " 1", false);
    spoil_text(type, tree, object, f, "-1", false);
}

static void spoil_texts(unsigned type, const cJSON *tree, cJSON *object,
                        const struct proto_field *f)
{
    char long_text[FRAME_BODY_MAX] = { 0 };
    bool is_name = f->kind == PROTO_NAME;

    memset(long_text, 'x', f->size);
    spoil_text(type, tree, object, f, long_text, false);
    long_text[f->size - 1] = '\0';
    spoil_text(type, tree, object, f, long_text, true);
    spoil_text(type, tree, object, f, "", !is_name || !f->required);
    spoil_text(type, tree, object, f, "a b", !is_name);
}

static void spoil_enum(unsigned type, const cJSON *tree, cJSON *object,
                       const struct proto_field *f)
{
    for (int64_t v = 0; v <= f->max; v++)
        spoil_text(type, tree, object, f, f->names[v], v >= f->min);
    spoil_text(type, tree, object, f, "", false);
    spoil_text(type, tree, object, f, "EXIT", false);
    spoil_text(type, tree, object, f, "exitt", false);
}

static void spoil_word(unsigned type, const cJSON *tree, cJSON *object,
                       const struct proto_field *f)
{
    for (int64_t v = 0; v <= f->max + 1; v++)
        spoil_text(type, tree, object, f, f->names[v], true);
    spoil_text(type, tree, object, f, "of-another-time", true);
    spoil_text(type, tree, object, f, "", false);
    spoil_text(type, tree, object, f, "a b", false);
}

static void (*const spoilers[])(unsigned, const cJSON *, cJSON *,
                                const struct proto_field *) = {
    [PROTO_U32] = spoil_number, [PROTO_I32] = spoil_number, [PROTO_U64] = spoil_hex,
    [PROTO_ID] = spoil_hex,     [PROTO_TEXT] = spoil_texts, [PROTO_TAIL] = spoil_texts,
    [PROTO_NAME] = spoil_texts, [PROTO_ENUM] = spoil_enum,  [PROTO_WORD] = spoil_word,
    [PROTO_BOOL] = NULL,        [PROTO_OBJECT] = NULL,
};

typedef void spoil_field(unsigned type, const cJSON *tree, cJSON *object,
                         const struct proto_field *f);

static void each_field(unsigned type, const cJSON *tree, cJSON *object,
                       const struct proto_table *table, spoil_field *fn)
{
    for (unsigned i = 0; i < table->count; i++) {
        const struct proto_field *f = &table->field[i];

        ck_assert_ptr_nonnull(cJSON_GetObjectItem(object, f->name));
        fn(type, tree, object, f);
        if (f->kind == PROTO_OBJECT)
            each_field(type, tree, cJSON_GetObjectItem(object, f->name), f->object, fn);
    }
}

/* Every field of a message of the type, in a body that is right but for it. */
static void spoil_each(unsigned type, spoil_field *fn)
{
    cJSON *tree;

    if (!proto_name(type))
        return;
    tree = tree_of(type);
    ck_assert_int_eq(decode_tree(type, tree), 0);
    each_field(type, tree, tree, &proto_messages[type].body, fn);
    ck_assert_int_eq(decode_tree(type, tree), 0);
    cJSON_Delete(tree);
}

TEST_LOOP(a_field_of_another_type_is_refused, 0, MSG_TYPE_MAX)
{
    spoil_each(_i, spoil_type);
}

static void spoil_value(unsigned type, const cJSON *tree, cJSON *object,
                        const struct proto_field *f)
{
    /* the versions of a HELLO bound each other: they have a table of their own */
    if (type != MSG_HELLO && spoilers[f->kind])
        spoilers[f->kind](type, tree, object, f);
}

TEST_LOOP(a_field_out_of_bounds_is_refused, 0, MSG_TYPE_MAX)
{
    spoil_each(_i, spoil_value);
}

static void leave_out(unsigned type, const cJSON *tree, cJSON *object,
                      const struct proto_field *f)
{
    cJSON *item = cJSON_DetachItemFromObjectCaseSensitive(object, f->name);

    ck_assert_msg((decode_tree(type, tree) == 0) == !f->required, "%s without %s: %s",
                  proto_name(type), f->name, e.text);
    ck_assert(!f->required || strstr(e.text, f->name));
    cJSON_AddItemToObject(object, f->name, item);
}

TEST_LOOP(a_field_may_be_missing_only_if_it_is_optional, 0, MSG_TYPE_MAX)
{
    spoil_each(_i, leave_out);
}

static void give_twice(unsigned type, const cJSON *tree, cJSON *object,
                       const struct proto_field *f)
{
    cJSON *item = cJSON_GetObjectItemCaseSensitive(object, f->name);
    cJSON *twin = cJSON_Duplicate(item, 1);

    cJSON_AddItemToObject(object, f->name, twin);
    ck_assert_int_eq(decode_tree(type, tree), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "twice"));
    cJSON_Delete(cJSON_DetachItemViaPointer(object, twin));
}

TEST_LOOP(a_field_may_not_be_there_twice, 0, MSG_TYPE_MAX)
{
    spoil_each(_i, give_twice);
}

static void add_unknown(unsigned type, const cJSON *tree, cJSON *object,
                        const struct proto_field *f)
{
    char name[64];
    cJSON *item = cJSON_CreateObject();

    snprintf(name, sizeof(name), "%s_", f->name);
    cJSON_AddItemToObject(item, "deeper", cJSON_CreateRaw("[1e999,{}]"));
    cJSON_AddItemToObject(object, name, item);
    ck_assert_msg(decode_tree(type, tree) == 0, "%s", e.text);
    ck_assert_msg(
        memcmp(&out.hello, &in.hello, sizeof(out) - offsetof(struct msg, hello)) == 0,
        "%s with %s", proto_name(type), name);
    cJSON_DeleteItemFromObjectCaseSensitive(object, name);
}

TEST_LOOP(an_unknown_field_is_passed_over, 0, MSG_TYPE_MAX)
{
    spoil_each(_i, add_unknown);
}

/* -- JSON ------------------------------------------------------------------- */

static const struct {
    const char *body;
    bool ok;
} bodies[] = {
    { "{}", true },
    { " \t\r\n{ \"a\" : [ 1 , -0.5e+3 , true , false , null ] } ", true },
    { "{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00fc\\ud83d\\udc0c\"}", true },
    { "{\"a\":1e999}", true },
    { "{\"a\":0}", true },
    { "{\"a\":-0}", true },
    { "{\"a\":{\"b\":{\"c\":[[[[[]]]]]}}}", true }, /* eight levels */
    { "{\"a\":{\"b\":{\"c\":[[[[[[]]]]]]}}}", false },
    { "{\"a\":\"[[[[[[[[[[{{{{{{{{{{\"}", true },
    { "{\"a\":[[],[],[],[],[],{},{},{},{},{}]}", true },
    { "", false },
    { " ", false },
    { "[]", false },
    { "null", false },
    { "\"{}\"", false },
    { "{", false },
    { "}", false },
    { "{}}", false },
    { "{}{}", false },
    { "{} x", false },
    { "{},", false },
    { "{]", false },
    { "{\"a\":1,}", false },
    { "{\"a\":1,", false },
    { "{\"a\":", false },
    { "{\"a\"", false },
    { "{\"a", false },
    { "{\"a\\", false },
    { "{\"a\\u", false },
    { "{\"a\\u12", false },
    { "{a:1}", false },
    { "{'a':1}", false },
    { "{1:1}", false },
    { "{\"a\" 1}", false },
    { "{\"a\":1 \"b\":2}", false },
    { "{\"a\":01}", false },
    { "{\"a\":-01}", false },
    { "{\"a\":+1}", false },
    { "{\"a\":1.}", false },
    { "{\"a\":.5}", false },
    { "{\"a\":1e}", false },
    { "{\"a\":1e+}", false },
    { "{\"a\":-}", false },
    { "{\"a\":1-2}", false },
    { "{\"a\":0x10}", false },
    { "{\"a\":NaN}", false },
    { "{\"a\":Infinity}", false },
    { "{\"a\":True}", false },
    { "{\"a\":\"\n\"}", false },
    { "{\"a\":\"\x1f\"}", false },
    { "{\x01\"a\":1}", false },
    { "{\x0b\"a\":1}", false },
    { "{\x7f\"a\":1}", false },
    { "\xef\xbb\xbf{}", false },
    { "{\"a\":\"\\x\"}", false },
    { "{\"a\":\"\\u0000\"}", false },
    { "{\"a\\u0000\":1}", false },
    { "{\"a\":\"\\uzzzz\"}", false },
    { "{\"a\":\"\\u00z0\"}", false },
    { "{\"a\":\"\\ud83d\"}", false },
    { "{\"a\":\"\\udc0c\"}", false },
    { "{\"a\":\"\\ud83d\\u0041\"}", false },
    { "{\"a\":\"\x80\"}", false },
    { "{\"a\":\"\xc3\"}", false },
    { "{\"a\":\"\xc0\xaf\"}", false },
    { "{\"a\":\"\xed\xa0\x80\"}", false },
    { "{\"a\":\"\xe0\x80\x80\"}", false },
    { "{\"a\":\"\xf0\x80\x80\x80\"}", false },
    { "{\"a\":\"\xf4\x90\x80\x80\"}", false },
    { "{\"\xff\":1}", false },
    { "{\"a\":1,\"a\":1}", false },
    { "{\"a\":1,\"\\u0061\":1}", false },
    { "{\"a\":1,\"A\":1}", true },
    { "{\"a\":{\"b\":1,\"b\":2}}", false },
    { "{\"a\":[{\"b\":1,\"b\":2}]}", false },
    { "{\"a\":{\"a\":{\"a\":1}}}", true },
};

/* No field of an ACK matters, so what is refused is refused for its form. */
TEST_EACH(a_body_is_json_to_the_letter, bodies)
{
    ck_assert_msg((decode(MSG_ACK, bodies[_i].body) == 0) == bodies[_i].ok, "%s: %s",
                  bodies[_i].body, e.text);
    ck_assert(bodies[_i].ok || strncmp(e.text, "ACK: ", 5) == 0);
}

TEST(a_body_holds_no_nul)
{
    ck_assert_int_eq(proto_decode_exactly(MSG_ACK, "{}\0", 3, &out, &e), -1);
    ck_assert_int_eq(proto_decode_exactly(MSG_ACK, "{}\0{}", 5, &out, &e), -1);
    ck_assert_int_eq(proto_decode_exactly(MSG_ACK, "\0{}", 3, &out, &e), -1);
    ck_assert_int_eq(proto_decode_exactly(MSG_ACK, "{\"a\":\"b\0\"}", 10, &out, &e),
                     -1);
}

TEST_LOOP(a_body_cut_anywhere_is_refused, 0, MSG_TYPE_MAX)
{
    size_t size;

    if (!proto_name(_i))
        return;
    proto_fill(&in, _i, PROTO_FILL_TYPICAL);
    size = proto_encode(&in, frame, sizeof(frame)) - FRAME_HEADER_SIZE;
    for (size_t cut = 0; cut < size; cut++)
        ck_assert_int_eq(
            proto_decode_exactly(_i, (char *)frame + BODY_AT, cut, &out, &e), -1);
}

TEST(an_object_has_a_bounded_number_of_fields)
{
    for (int count = JSON_MEMBERS_MAX - 1; count <= JSON_MEMBERS_MAX + 1; count++) {
        char body[FRAME_BODY_MAX] = "{";
        size_t used = 1;

        for (int i = 0; i < count; i++)
            used += (size_t)snprintf(body + used, sizeof(body) - used, "%s\"%d\":0",
                                     i ? "," : "", i);
        strcpy(body + used, "}");
        ck_assert_int_eq(decode(MSG_ACK, body), count <= JSON_MEMBERS_MAX ? 0 : -1);
    }
}

TEST(a_body_over_the_limit_is_not_read)
{
    struct frame_header h = { .type = MSG_ACK, .body_size = FRAME_BODY_MAX + 1 };

    ck_assert_int_eq(proto_decode(&h, NULL, &out, &e), -1);
}

TEST(a_number_without_a_message_is_refused)
{
    struct frame_header h = { .body_size = 2 };

    for (unsigned type = 0; type <= UINT16_MAX; type++) {
        h.type = (uint16_t)type;
        if (!proto_name(type))
            ck_assert_int_eq(proto_decode(&h, "{}", &out, &e), -1);
    }
}

/* Of 256 and its multiples the system keeps 0: success. */
static const struct {
    enum msg_type type;
    const char *body; /* with one %d */
    int lowest;
} ends[] = {
    { MSG_LEAVE, "{\"exit_code\":%d}", 1 },
    { MSG_END, "{\"exit_code\":%d}", 1 },
    { MSG_FAILED, "{\"kind\":\"exit\",\"code\":%d}", 0 },
    { MSG_DONE,
      "{\"exit_code\":%d,\"reason\":\"user\",\"restarts\":0,\"max_restarts\":0}", 0 },
};

TEST_EACH(an_exit_code_is_one_that_a_process_can_end_with, ends)
{
    static const int codes[] = { -256, -1, 0, 1, 143, 255, 256, 512, 65536 };
    int lowest = ends[_i].lowest;

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        struct frame_header h = { .type = (uint16_t)ends[_i].type };
        char text[128];
        struct msg m;

        snprintf(text, sizeof(text), ends[_i].body, codes[i]);
        h.body_size = (uint32_t)strlen(text);
        ck_assert_msg((proto_decode(&h, text, &m, &e) == 0) ==
                          (codes[i] >= lowest && codes[i] <= 255),
                      "%s", text);
    }
}
