/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/protocol/json_strict.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"

/*
 * Alone, without cJSON behind it: what it must refuse, and that it reads no byte more
 * than it was given. That a body as a whole is JSON to the letter is test_proto's part.
 */
static struct err e;

static const struct {
    const char *text;
    const char *refused; /* a part of the reason, or NULL */
} texts[] = {
    { "{\"a\":[1,-2.5e+10,0,true,false,null,\"\\u00e9\\\"\"]}", NULL },
    { "[[[]]]", NULL },
    { "[[],[],[[]],[[]]]", NULL },
    { "[[[[]]]]", "deep" },
    { "{\"a\":{\"b\":{\"c\":{}}}}", "deep" },
    { "]", NULL }, /* not JSON, which is not its business */
    { "01", "number" },
    { "-", "number" },
    { "1.", "number" },
    { "1e", "number" },
    { "\"", "end" },
    { "\"\\", "end" },
    { "\"\\u", "cut off" },
    { "\"\\u123", "cut off" },
    { "\"\\u12g4\"", "hex" },
    { "\"\\u0000\"", "NUL" },
    { "\"\n\"", "control" },
    { "\"\x80\"", "UTF-8" },
    { "\x01", "outside" },
    { "\x80", "outside" },
    { "\xef\xbb\xbf{}", "outside" },
};

TEST_EACH(what_cjson_lets_through_is_refused, texts)
{
    size_t size = strlen(texts[_i].text);
    char *exact = xmemdup(texts[_i].text, size);
    int result = json_check(exact, size, 3, &e);

    ck_assert_msg((result == 0) == !texts[_i].refused, "%s", texts[_i].text);
    ck_assert_msg(result == 0 || strstr(e.text, texts[_i].refused), "%s: %s",
                  texts[_i].text, e.text);
    free(exact);
}
