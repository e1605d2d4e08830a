/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/protocol/job_name.h"

#include <string.h>

#include "rendezvous/wire/protocol/proto.h"
#include "tests/worlds/check_main.h"

static const struct {
    const char *run_id, *program, *name;
} names[] = {
    { "exp-17", "train.py", "exp-17" },
    { "none", "train.py", "train" },
    { "none", "/opt/x/train.py", "train" },
    { "none", "package.module", "package.module" },
    { "none", ".py", ".py" },
    { "none", "", "none" },
    { "", "python", "python" },
    { "8a1fa833-c34c-4c21-a1e6-3965c7f4534e", "sleep", "sleep" },
    { "8a1fa833-c34c-4c21-a1e6-3965c7f4534", "sleep",
      "8a1fa833-c34c-4c21-a1e6-3965c7f4534" },
    { "c0ffee12", "sleep", "sleep" },
    { "49200123", "sleep", "49200123" }, /* the number of a batch job */
    { "c0ffee123", "sleep", "c0ffee123" },
};

TEST_EACH(a_name_is_the_run_id_unless_that_was_drawn, names)
{
    char buf[JOB_NAME_SIZE];

    ck_assert_str_eq(job_name(names[_i].run_id, names[_i].program, buf, sizeof(buf)),
                     names[_i].name);
}

TEST(a_run_id_that_is_made_is_known_as_such)
{
    static const char *const drawn[] = { "0123456789", "9fffffffff", "abcdef0123" };
    char id[9];

    for (size_t i = 0; i < sizeof(drawn) / sizeof(drawn[0]); i++) {
        job_name_make_id(drawn[i], id);
        ck_assert_uint_eq(strlen(id), 8);
        ck_assert(job_name_is_generated(id));
        ck_assert(proto_is_name(id));
        ck_assert_mem_eq(id + 1, drawn[i] + 1, 7);
    }
}
