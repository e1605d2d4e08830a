/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/protocol/proto.h"

#include <string.h>

#include "rendezvous/wire/protocol/frame.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/proto_fill.h"

#define BODY_AT FRAME_HEADER_SIZE

static uint8_t frame[FRAME_HEADER_SIZE + FRAME_BODY_MAX];
static struct msg in, out;
static struct err e;

/* Through the frame and back. Returns the size of the body. */
static uint32_t travel(const struct msg *m, struct msg *back)
{
    size_t size = proto_encode(m, frame, sizeof(frame));
    struct frame_header h;

    ck_assert_int_eq(frame_get_header(frame, size, FRAME_BODY_MAX, &h, &e), 1);
    ck_assert_uint_eq(size, FRAME_HEADER_SIZE + h.body_size);
    ck_assert_msg(proto_decode(&h, frame + BODY_AT, back, &e) == 0, "%s: %.*s", e.text,
                  (int)h.body_size, (const char *)frame + BODY_AT);
    return h.body_size;
}

static int decode(unsigned type, const char *body)
{
    return proto_decode_exactly(type, body, strlen(body), &out, &e);
}

/* -- round trips ------------------------------------------------------------ */

TEST_LOOP(every_message_arrives_as_it_was_sent, 0, MSG_TYPE_MAX)
{
    for (enum proto_fill how = 0; how < PROTO_FILL_COUNT && proto_name(_i); how++) {
        proto_fill(&in, _i, how);
        travel(&in, &out);
        ck_assert_msg(memcmp(&in, &out, sizeof(in)) == 0, "%s, filling %d",
                      proto_name(_i), how);
    }
}

TEST_LOOP(an_idle_heartbeat_and_its_answer_are_empty, 0, 2)
{
    in = (struct msg){ .type = _i ? MSG_BEAT : MSG_HEARTBEAT };
    ck_assert_uint_eq(travel(&in, &out), 2);
    ck_assert_mem_eq(frame + BODY_AT, "{}", 2);
}

TEST(no_failure_is_no_field)
{
    in = (struct msg){ .type = MSG_DONE, .done = { .reason = JOB_REASON_SUCCESS } };
    strcpy(in.done.failure.host, "left over");
    uint32_t size = travel(&in, &out);

    ck_assert_ptr_null(memmem(frame + BODY_AT, size, "failure", 7));
    ck_assert_int_eq(out.done.failure.kind, FAILURE_NONE);
}

/* -- texts ------------------------------------------------------------------ */

static const struct {
    const char *sent, *arrives;
} texts[] = {
    { "plain", "plain" },
    { "\" \\ / \n \t \r \b \f \x01 \x1f \x7f",
      "\" \\ / \n \t \r \b \f \x01 \x1f \x7f" },
    { "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\x8c",
      "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\x8c" },
    { "a\x80z", "a?z" },                   /* a second byte alone */
    { "a\xc3", "a?" },                     /* a character cut by its end */
    { "a\xe2\x82z", "a??z" },              /* and by another */
    { "\xc0\xaf", "??" },                  /* longer than needed */
    { "\xed\xa0\x80", "???" },             /* half a surrogate pair */
    { "\xf4\x90\x80\x80 \xff", "???? ?" }, /* beyond the last character */
    { "\xf4\x8f\xbf\xbf\xee\x80\x80", "\xf4\x8f\xbf\xbf\xee\x80\x80" },
};

TEST_EACH(a_text_arrives_as_utf8, texts)
{
    in = (struct msg){ .type = MSG_REFUSED, .refused.why = REFUSED_BUSY };
    strcpy(in.refused.text, texts[_i].sent);
    travel(&in, &out);
    ck_assert_str_eq(out.refused.text, texts[_i].arrives);
}

TEST(a_text_that_fills_its_field_arrives_whole)
{
    in = (struct msg){ .type = MSG_FAILED, .failed.kind = FAILURE_EXIT };
    memset(in.failed.said, 'x', sizeof(in.failed.said) - 1);
    travel(&in, &out);
    ck_assert_str_eq(out.failed.said, in.failed.said);
}

TEST_LOOP(the_worst_texts_fit_and_names_stay_whole, 0, MSG_TYPE_MAX)
{
    if (!proto_name(_i))
        return;
    proto_fill(&in, _i, PROTO_FILL_MAX);
    proto_fill_texts(&in, '\x01'); /* six bytes for one */
    ck_assert_uint_le(travel(&in, &out), FRAME_BODY_MAX);
    ck_assert_msg(proto_same_but_texts(&in, &out), "%s", proto_name(_i));
    if (_i == MSG_HELLO)
        ck_assert_uint_le(travel(&in, &out), FRAME_BODY_HELLO_MAX);
}

TEST(last_lines_that_must_be_cut_keep_their_end)
{
    const char *last = "the last line";

    in = (struct msg){ .type = MSG_FAILED, .failed.kind = FAILURE_EXIT };
    memset(in.failed.said, '\x01', sizeof(in.failed.said) - 1);
    strcpy(in.failed.said + sizeof(in.failed.said) - 1 - strlen(last), last);
    strcpy(in.failed.what, "what");
    travel(&in, &out);
    ck_assert_uint_lt(strlen(out.failed.said), strlen(in.failed.said));
    ck_assert_str_eq(out.failed.said + strlen(out.failed.said) - strlen(last), last);
    ck_assert_str_eq(out.failed.what, "what");
}

static const struct {
    const char *text;
    bool ok;
} names[] = {
    { "none", true },
    { "resnet-50_b.1", true },
    { "user@host+x%y:80", true },
    { "fe80::1%eth0", true },
    { "", false },
    { "a b", false },
    { "a/b", false },
    { "a\n", false },
    { "\x1b[2J", false },
    { "\xc3\xbc", false },
    { "a\"", false },
};

TEST_EACH(a_name_is_made_of_few_characters, names)
{
    ck_assert_int_eq(proto_is_name(names[_i].text), names[_i].ok);
    in = (struct msg){ .type = MSG_RESUME };
    strcpy(in.resume.run_id, names[_i].text);
    size_t size = proto_encode(&in, frame, sizeof(frame)) - FRAME_HEADER_SIZE;

    ck_assert_int_eq(
        proto_decode_exactly(MSG_RESUME, (char *)frame + BODY_AT, size, &out, &e),
        names[_i].ok ? 0 : -1);
}

/* -- hello ------------------------------------------------------------------ */

static const struct {
    const char *body;
    bool ok;
} hellos[] = {
    { "{\"version_min\":3,\"version_max\":3,\"role\":\"agent\"}", true },
    { "{\"version_min\":3,\"version_max\":3}", false },
    { "{\"version_min\":3,\"version_max\":3,\"role\":\"boss\"}", false },
    { "{\"version_min\":3,\"version_max\":3,\"role\":\"none\"}", false },
    { "{\"version_min\":1,\"version_max\":9,\"role\":17}", false },
    { "{\"version_min\":8,\"version_max\":9}", true },
    { "{\"version_min\":8,\"version_max\":9,\"role\":17,\"software\":[]}", true },
    { "{\"version_min\":8,\"version_max\":4294967295}", true },
    { "{\"version_min\":0,\"version_max\":1,\"role\":\"agent\"}", false },
    { "{\"version_min\":8,\"version_max\":1,\"role\":\"agent\"}", false },
    { "{\"version_min\":2}", false },
    { "{\"version_max\":2}", false },
    { "{\"version_min\":8,\"version_max\":4294967296}", false },
};

TEST_EACH(a_hello_of_another_version_is_understood_so_far, hellos)
{
    ck_assert_msg((decode(MSG_HELLO, hellos[_i].body) == 0) == hellos[_i].ok, "%s: %s",
                  hellos[_i].body, e.text);
}

/* -- tables ----------------------------------------------------------------- */

/* Test_proto_doc.c compares the phases with PROTOCOL.md. */
TEST_LOOP(a_number_that_no_message_has_is_not_allowed, 0, PROTO_PHASE_COUNT)
{
    for (unsigned type = 0; type <= UINT16_MAX; type++)
        ck_assert(proto_name(type) || !proto_allowed(type, (enum proto_phase)_i));
    ck_assert_uint_eq(proto_body_max((enum proto_phase)_i),
                      _i == PROTO_NEW ? FRAME_BODY_HELLO_MAX : FRAME_BODY_MAX);
}

/* No padding between them but what alignment asks for: so nothing is left out. */
static size_t alignment_of(const struct proto_field *f);

static size_t check_layout(const struct proto_table *table, const char *name,
                           size_t *alignment)
{
    size_t at = 0;

    for (unsigned i = 0; i < table->count; i++) {
        const struct proto_field *f = &table->field[i];
        size_t a = alignment_of(f);

        at = (at + a - 1) / a * a;
        ck_assert_msg(f->offset == at, "%s: something is missing before %s", name,
                      f->name);
        at += f->size;
        if (a > *alignment)
            *alignment = a;
    }
    return (at + *alignment - 1) / *alignment * *alignment;
}

static size_t alignment_of(const struct proto_field *f)
{
    size_t alignment = 1, size;

    switch (f->kind) {
    case PROTO_U32:
    case PROTO_I32:
    case PROTO_ENUM:
    case PROTO_WORD:
        return 4;
    case PROTO_U64:
        return 8;
    case PROTO_OBJECT:
        size = check_layout(f->object, f->name, &alignment);
        ck_assert_uint_eq(size, f->size);
        return alignment;
    default:
        return 1;
    }
}

static const size_t sizes[MSG_TYPE_MAX] = {
#define MESSAGE(number, name, body, ...) [number] = sizeof(((struct msg *)0)->body),
#include "rendezvous/wire/protocol/message_table.h"
};

TEST_LOOP(no_member_of_a_message_is_left_out, 0, MSG_TYPE_MAX)
{
    size_t alignment = 1;

    if (proto_name(_i))
        ck_assert_uint_eq(
            check_layout(&proto_messages[_i].body, proto_name(_i), &alignment),
            sizes[_i]);
}

TEST(a_viewer_is_shown_no_pid_address_or_output)
{
    struct msg m;

    for (enum access access = ACCESS_VIEW; access <= ACCESS_OPERATE; access++) {
        bool all = access == ACCESS_OPERATE;

        proto_fill(&m, MSG_NODE_STATUS, PROTO_FILL_TYPICAL);
        proto_redact(&m, access);
        ck_assert_str_ne(m.node_status.host, "");
        ck_assert_int_eq(*m.node_status.address != '\0', all);
        ck_assert_int_eq(m.node_status.pid != 0, all);
        proto_fill(&m, MSG_JOB_STATUS, PROTO_FILL_TYPICAL);
        proto_redact(&m, access);
        ck_assert_int_eq(*m.job_status.failure.said != '\0', all);
        ck_assert(id128_is_zero(&m.job_status.instance)); /* a node's alone */
    }
}

TEST(everything_has_a_name_of_its_own)
{
    for (unsigned i = 0; i < REFUSED_COUNT; i++)
        for (unsigned k = 0; k < i; k++)
            ck_assert_str_ne(proto_refusal_name(i), proto_refusal_name(k));
    for (unsigned i = 0; i < FAILURE_KIND_COUNT; i++)
        for (unsigned k = 0; k < i; k++)
            ck_assert_str_ne(proto_failure_kind_name(i), proto_failure_kind_name(k));
    for (unsigned i = 0; i < MSG_TYPE_MAX; i++)
        for (unsigned k = 0; k < i; k++)
            ck_assert(!proto_name(i) || !proto_name(k) ||
                      strcmp(proto_name(i), proto_name(k)) != 0);
    ck_assert_ptr_null(proto_name(0));
    ck_assert_ptr_null(proto_name(MSG_TYPE_MAX));
}
