/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <math.h>

#include "launcher/crunctl/ui/top_graph.h"
#include "tests/worlds/check_main.h"

TEST(a_curve_goes_from_the_least_to_the_greatest)
{
    const float rising[] = { 0, 1, 2, 3, 4, 5, 6, 7 }, flat[] = { 3, 3 };
    const float gap[] = { 7, NAN, 0, INFINITY };
    char buf[TOP_GRAPH_BYTES(8)];

    ck_assert_str_eq(top_graph_curve(rising, 8, 8, false, true, buf, sizeof(buf)),
                     "▁▂▃▄▅▆▇█");
    ck_assert_str_eq(top_graph_curve(rising, 8, 20, false, true, buf, sizeof(buf)),
                     "▁▂▃▄▅▆▇█");
    ck_assert_str_eq(top_graph_curve(rising, 8, 2, false, true, buf, sizeof(buf)),
                     "▁█");
    ck_assert_str_eq(top_graph_curve(rising, 8, 8, false, false, buf, sizeof(buf)),
                     "__..--=#");
    ck_assert_str_eq(top_graph_curve(flat, 2, 8, false, true, buf, sizeof(buf)), "▅▅");
    ck_assert_str_eq(top_graph_curve(flat, 2, 8, true, true, buf, sizeof(buf)), "██");
    ck_assert_str_eq(top_graph_curve(gap, 4, 8, false, true, buf, sizeof(buf)), "█ ▁ ");
    ck_assert_str_eq(top_graph_curve(NULL, 0, 8, false, true, buf, sizeof(buf)), "");
    ck_assert_str_eq(top_graph_curve(rising, 8, 0, false, true, buf, sizeof(buf)), "");
}

TEST(a_bar_is_as_full_as_its_share)
{
    char buf[TOP_GRAPH_BYTES(4)];

    ck_assert_str_eq(top_graph_bar(1, 4, true, buf, sizeof(buf)), "████");
    ck_assert_str_eq(top_graph_bar(7, 4, true, buf, sizeof(buf)), "████");
    ck_assert_str_eq(top_graph_bar(0.5, 4, true, buf, sizeof(buf)), "██··");
    ck_assert_str_eq(top_graph_bar(0.28125, 4, true, buf, sizeof(buf)), "█▏··");
    ck_assert_str_eq(top_graph_bar(0, 4, true, buf, sizeof(buf)), "····");
    ck_assert_str_eq(top_graph_bar(-1, 4, false, buf, sizeof(buf)), "....");
    ck_assert_str_eq(top_graph_bar(0.5, 4, false, buf, sizeof(buf)), "##..");
}
