/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

#include "rendezvous/show/views/json_patch.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/json_apply.h"

static const struct {
    const char *from, *to, *patch;
} cases[] = {
    { "{\"a\":1,\"b\":[1,2]}", "{\"a\":1,\"b\":[1,2]}", NULL },
    { "{\"a\":1,\"b\":2}", "{\"a\":1,\"b\":3}",
      "[{\"op\":\"replace\",\"path\":\"/b\",\"value\":3}]" },
    { "{\"a\":{\"b\":null}}", "{\"a\":{\"b\":\"x\"}}",
      "[{\"op\":\"replace\",\"path\":\"/a/b\",\"value\":\"x\"}]" },
    { "[1,2,3]", "[1,5]",
      "[{\"op\":\"replace\",\"path\":\"/1\",\"value\":5},"
      "{\"op\":\"remove\",\"path\":\"/2\"}]" },
    { "[1]", "[1,2,3]",
      "[{\"op\":\"add\",\"path\":\"/1\",\"value\":2},"
      "{\"op\":\"add\",\"path\":\"/2\",\"value\":3}]" },
    /* other members: another object */
    { "{\"a\":{\"b\":1}}", "{\"a\":{\"c\":1}}",
      "[{\"op\":\"replace\",\"path\":\"/a\",\"value\":{\"c\":1}}]" },
    { "{\"a\":{\"b\":1}}", "{\"a\":null}",
      "[{\"op\":\"replace\",\"path\":\"/a\",\"value\":null}]" },
    { "1", "2", "[{\"op\":\"replace\",\"path\":\"\",\"value\":2}]" },
    /* lists whose items are known by their first member */
    { "[{\"n\":1,\"v\":0},{\"n\":2,\"v\":0},{\"n\":3,\"v\":0}]",
      "[{\"n\":2,\"v\":0},{\"n\":3,\"v\":1},{\"n\":4,\"v\":0}]",
      "[{\"op\":\"remove\",\"path\":\"/0\"},"
      "{\"op\":\"replace\",\"path\":\"/1/v\",\"value\":1},"
      "{\"op\":\"add\",\"path\":\"/2\",\"value\":{\"n\":4,\"v\":0}}]" },
    { "[{\"n\":1},{\"n\":2}]", "[{\"n\":1},{\"n\":7},{\"n\":8},{\"n\":2}]",
      "[{\"op\":\"add\",\"path\":\"/1\",\"value\":{\"n\":7}},"
      "{\"op\":\"add\",\"path\":\"/2\",\"value\":{\"n\":8}}]" },
    { "[{},{}]", "[{},{\"n\":1},[]]",
      "[{\"op\":\"replace\",\"path\":\"/1\",\"value\":{\"n\":1}},"
      "{\"op\":\"add\",\"path\":\"/2\",\"value\":[]}]" },
    /* for a terminal, too */
    { "{\"a\":\"\"}", "{\"a\":\"\xe2\x80\xae\"}",
      "[{\"op\":\"replace\",\"path\":\"/a\",\"value\":\"\\u202e\"}]" },
};

TEST_EACH(a_patch_is_what_differs, cases)
{
    cJSON *from = cJSON_Parse(cases[_i].from), *to = cJSON_Parse(cases[_i].to);
    char *text = json_patch(from, to);
    cJSON *patch = text ? cJSON_Parse(text) : NULL;

    ck_assert_ptr_nonnull(from);
    ck_assert_ptr_nonnull(to);
    ck_assert_pstr_eq(text, cases[_i].patch);
    from = json_apply(from, patch);
    ck_assert(cJSON_Compare(from, to, true));
    cJSON_Delete(from);
    cJSON_Delete(to);
    cJSON_Delete(patch);
    free(text);
}
