/* SPDX-License-Identifier: MIT */
#include "worker-lib/preflight/verdict.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/base/clock.h"
#include "tests/helpers/check_main.h"
#include "tests/helpers/team.h"
#include "worker-lib/preflight/reach.h"

/* Who goes, '1', by who reaches whom: a row a node. */
static const struct {
    const char *what;
    unsigned nodes;
    const char *letters, *unfit;
} cases[] = {
    { "all is well", 3,
      "+++"
      "+++"
      "+++",
      "000" },
    { "one reaches nobody", 3,
      "++-"
      "++-"
      "--+",
      "001" },
    { "the first reaches nobody", 3,
      "+--"
      "-++"
      "-++",
      "100" },
    { "one direction is enough", 3,
      "+++"
      "+++"
      "-++",
      "001" },
    { "two that miss each other: the later one", 3,
      "+++"
      "++-"
      "+-+",
      "001" },
    { "two pairs with one in common", 4,
      "+-++"
      "-+-+"
      "+-++"
      "++++",
      "0100" },
    { "one is silent", 3,
      "++-"
      "++-"
      "???",
      "001" },
    { "half are silent", 4,
      "++--"
      "++--"
      "????"
      "????",
      "0011" },
    { "most are silent: they are not all at fault", 3,
      "+--"
      "???"
      "???",
      "100" },
    { "of two, the other one is silent", 2,
      "+-"
      "??",
      "01" },
};

START_TEST(who_goes)
{
    bool unfit[8];
    char text[9] = "";

    ck_assert_uint_eq(strlen(cases[_i].letters), cases[_i].nodes * cases[_i].nodes);
    verdict_find(cases[_i].letters, cases[_i].nodes, unfit);
    for (unsigned i = 0; i < cases[_i].nodes; i++)
        text[i] = unfit[i] ? '1' : '0';
    ck_assert_msg(strcmp(text, cases[_i].unfit) == 0, "%s: %s", cases[_i].what, text);
}
END_TEST

static const char *name(const void *arg, unsigned node, char *buf, size_t size)
{
    snprintf(buf, size, "%s%u", (const char *)arg, node);
    return buf;
}

START_TEST(why)
{
    const char *letters = "+-++"
                          "++++"
                          "+++-"
                          "????";
    char text[64], small[16];

    ck_assert_str_eq(verdict_reason(letters, 4, 0, name, "n", text, sizeof(text)),
                     "has no connection with n1, n3");
    ck_assert_str_eq(verdict_reason(letters, 4, 2, name, "n", text, sizeof(text)),
                     "has no connection with n3");
    ck_assert_str_eq(verdict_reason(letters, 4, 3, name, "n", text, sizeof(text)),
                     "has said nothing");
    ck_assert_str_eq(verdict_reason(letters, 4, 0, name, "n", small, sizeof(small)),
                     "has no connecti");
}
END_TEST

static void hear_a_verdict_without_a_reason(struct member *m)
{
    const struct environment env = { .node = 1, .nodes = 2, .local_rank = 1 };
    const struct reach r = {
        .env = &env, .store = m->team.store, .begin_ms = clock_ms(), .patience_ms = 1000
    };
    const bool unfit[] = { false, true };
    char text[64] = "what was here before";

    ck_assert_int_eq(store_client_set(m->team.store, "crun-preflight/verdict/0", unfit,
                                      sizeof(unfit), clock_ms() + TEAM_DEADLINE_MS,
                                      &m->e),
                     CRUN_OK);
    ck_assert_int_eq(reach_find(&r, text, sizeof(text)), REACH_UNFIT);
    ck_assert_str_eq(text, "node 1 is said to be at fault");
}

START_TEST(a_verdict_without_a_reason)
{
    team_run(&(struct team_plan){
        .calls = &backend_self, .size = 1, .body = hear_a_verdict_without_a_reason });
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("preflight");
    TCase *t = tcase_create("verdict");

    tcase_add_loop_test(t, who_goes, 0, sizeof(cases) / sizeof(cases[0]));
    tcase_add_test(t, why);
    tcase_add_test(t, a_verdict_without_a_reason);
    suite_add_tcase(suite, t);
    return check_main(suite);
}
