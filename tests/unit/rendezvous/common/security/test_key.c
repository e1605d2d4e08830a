/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/security/key.h"

#include <stdlib.h>
#include <string.h>

#include "tests/worlds/check_main.h"

#define LINE                                                                           \
    "crun1:00112233445566ff:agent:0:"                                                  \
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define LATER 2000000000

static struct key parse_good(const char *line)
{
    struct key k;
    struct err e;

    ck_assert_int_eq(key_parse(line, strlen(line), &k, &e), 0);
    return k;
}

TEST(a_key_reads_as_it_was_written)
{
    struct key k = parse_good(LINE);
    char text[KEY_TEXT_SIZE];

    ck_assert_str_eq(k.id, "00112233445566ff");
    ck_assert_int_eq((int)k.access, ACCESS_AGENT);
    ck_assert_int_eq(k.expires, 0);
    ck_assert_int_eq(k.secret[31], 31);
    ck_assert_str_eq(key_format(&k, text), LINE "\n");
}

TEST(generated_keys_differ_and_read_back)
{
    char text[KEY_TEXT_SIZE];
    struct key a, b, read;

    key_generate(LATER, &a);
    key_generate(LATER, &b);
    ck_assert_str_ne(a.id, b.id);
    ck_assert(memcmp(a.secret, b.secret, sizeof(a.secret)) != 0);
    key_format(&a, text);
    text[strlen(text) - 1] = '\0';
    read = parse_good(text);
    ck_assert_str_eq(read.id, a.id);
    ck_assert(memcmp(read.secret, a.secret, sizeof(a.secret)) == 0);
    ck_assert_int_eq(read.expires, LATER);
}

TEST(a_line_cut_anywhere_is_refused)
{
    const size_t size = strlen(LINE);
    struct err e;
    struct key k;

    for (size_t i = 0; i < size; i++) {
        char *part = malloc(i + 1); /* so that a sanitizer sees what is behind */

        memcpy(part, LINE, i);
        ck_assert_int_eq(key_parse(part, i, &k, &e), -1);
        for (size_t b = 0; b < sizeof(k.secret); b++)
            ck_assert_int_eq(k.secret[b], 0);
        free(part);
    }
    ck_assert_int_eq(key_parse(LINE "0", size + 1, &k, &e), -1);
}

TEST(nonsense_is_refused_and_not_quoted)
{
    static const struct {
        const char *line, *why;
    } bad[] = {
        { "ssh-ed25519 AAAA", "not a key" },
        { "crun2:whatever it is", "later version" },
        { "crun1:00112233445566FF:agent:0:00", "cut or damaged" },
        { "crun1:00112233445566ff:none:0:00", "cut or damaged" },
        { "crun1:00112233445566ff:root:0:00", "cut or damaged" },
        { "crun1:00112233445566ff:agent:-1:00", "cut or damaged" },
        { "crun1:00112233445566ff:agent:99999999999999999999:00", "cut or damaged" },
        { "crun1::::", "cut or damaged" },
    };
    struct err e;
    struct key k;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(key_parse(bad[i].line, strlen(bad[i].line), &k, &e), -1);
        ck_assert_msg(strstr(e.text, bad[i].why) != NULL, "%s", e.text);
        ck_assert_ptr_null(strstr(e.text, "00112233"));
    }
}

TEST(a_derived_key_is_another_for_each_access_and_end)
{
    struct key agent = parse_good(LINE), view, operate, short_view, again;
    struct err e;

    ck_assert_int_eq(key_derive(&agent, ACCESS_VIEW, 0, &view, &e), 0);
    ck_assert_int_eq(key_derive(&agent, ACCESS_OPERATE, 0, &operate, &e), 0);
    ck_assert_int_eq(key_derive(&agent, ACCESS_VIEW, LATER, &short_view, &e), 0);
    ck_assert_int_eq(key_derive(&agent, ACCESS_VIEW, 0, &again, &e), 0);
    ck_assert_str_eq(view.id, agent.id);
    ck_assert_int_eq((int)view.access, ACCESS_VIEW);
    ck_assert(memcmp(view.secret, again.secret, sizeof(view.secret)) == 0);
    ck_assert(memcmp(view.secret, agent.secret, sizeof(view.secret)) != 0);
    ck_assert(memcmp(view.secret, operate.secret, sizeof(view.secret)) != 0);
    ck_assert(memcmp(view.secret, short_view.secret, sizeof(view.secret)) != 0);
}

TEST(no_key_gives_one_that_allows_more_or_longer)
{
    struct key agent = parse_good(LINE), view, out;
    struct err e;

    agent.expires = LATER;
    ck_assert_int_eq(key_derive(&agent, ACCESS_VIEW, LATER - 1, &view, &e), 0);
    ck_assert_int_eq(key_derive(&agent, ACCESS_VIEW, 0, &out, &e), -1);
    ck_assert_int_eq(key_derive(&agent, ACCESS_VIEW, LATER + 1, &out, &e), -1);
    ck_assert_int_eq(key_derive(&view, ACCESS_AGENT, LATER - 1, &out, &e), -1);
    ck_assert_int_eq(key_derive(&view, ACCESS_VIEW, LATER, &out, &e), -1);
    ck_assert_int_eq(key_derive(&view, ACCESS_VIEW, LATER - 1, &out, &e), 0);
}

TEST(an_identity_says_what_the_key_is_and_nothing_of_its_secret)
{
    struct key k = parse_good(LINE);
    struct key_identity identity;
    struct tls_psk psk;

    k.expires = LATER;
    key_psk(&k, &psk);
    ck_assert_str_eq(psk.identity, "crun1:00112233445566ff:agent:2000000000");
    ck_assert(memcmp(psk.secret, k.secret, sizeof(k.secret)) != 0);
    ck_assert(key_identity_parse(psk.identity, &identity));
    ck_assert_str_eq(identity.id, k.id);
    ck_assert_int_eq((int)identity.access, ACCESS_AGENT);
    ck_assert_int_eq(identity.expires, LATER);
}

TEST(other_texts_are_no_identity)
{
    static const char *const bad[] = { "",
                                       ":",
                                       "crun1",
                                       "crun1:00112233445566ff:agent",
                                       "crun1:00112233445566ff:agent:",
                                       "crun1:00112233445566ff:agent:0:",
                                       "crun1:00112233445566ff:agent:0:0",
                                       "crun1:00112233445566ff:agent:00",
                                       "crun1:00112233445566ff:none:0",
                                       "crun1:00112233445566ff::0",
                                       "crun1:0011223344556677889900:agent:0",
                                       "crun1-store:00112233445566ff",
                                       "crun2:00112233445566ff:agent:0" };
    struct key_identity identity;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!key_identity_parse(bad[i], &identity), "%s", bad[i]);
}

TEST(an_end_is_a_date)
{
    char text[KEY_DATE_SIZE];

    ck_assert_str_eq(key_format_date(0, text), "never");
    ck_assert_str_eq(key_format_date(LATER, text), "2033-05-18 03:33 UTC");
    ck_assert_str_eq(key_format_date(999999999999999, text), "a far day");
    ck_assert(!key_has_ended(0, LATER));
    ck_assert(!key_has_ended(LATER, LATER - 1));
    ck_assert(key_has_ended(LATER, LATER));
}
