/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/protocol/base64.h"

#include <string.h>

#include "tests/worlds/check_main.h"

static const struct {
    const char *bytes, *text;
} pairs[] = {
    { "", "" },         { "f", "Zg==" },        { "fo", "Zm8=" },
    { "foo", "Zm9v" },  { "foob", "Zm9vYg==" }, { "\xff\xfe\xfd", "//79" },
    { "\n?>", "Cj8+" },
};

TEST_EACH(bytes_become_text_and_text_bytes, pairs)
{
    const char *bytes = pairs[_i].bytes;
    char text[BASE64_SIZE(8)], back[8] = "";

    ck_assert_str_eq(base64_encode(bytes, strlen(bytes), text), pairs[_i].text);
    ck_assert_int_eq(base64_decode(text, back, sizeof(back)), (int)strlen(bytes));
    ck_assert_str_eq(back, bytes);
}

static const char *const wrong[] = {
    "Z", "Zg", "Zg=", "Zg==Zg==", "Z===", "====", "Zm 9", "Zm9\n", "Zg=v", "Zm-_",
};

TEST_EACH(other_text_is_refused, wrong)
{
    char bytes[16];

    ck_assert_int_eq(base64_decode(wrong[_i], bytes, sizeof(bytes)), -1);
}

TEST(no_more_than_fits_is_written)
{
    char bytes[3] = "zz";

    ck_assert_int_eq(base64_decode("Zm9v", bytes, 2), -1);
    ck_assert_int_eq(base64_decode("Zm9v", bytes, 3), 3);
}
