/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/ui/loss_picture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"

static struct loss_curve curve;

static double sum_steps(void)
{
    double steps = 0;

    for (unsigned i = 0; i < curve.count; i++)
        steps += curve.point[i].steps;
    return steps;
}

static double mean_of_all(void)
{
    double loss = 0;

    for (unsigned i = 0; i < curve.count; i++)
        loss += curve.point[i].loss;
    return loss / sum_steps();
}

/* -- the curve -------------------------------------------------------------- */

START_TEST(a_long_training_keeps_its_means)
{
    loss_curve_init(&curve);
    for (uint64_t step = 1; step <= 1000000; step++)
        loss_curve_add(&curve, step, (double)step);
    ck_assert_uint_le(curve.count, LOSS_CURVE_POINTS);
    ck_assert_uint_ge(curve.count, LOSS_CURVE_POINTS / 2);
    ck_assert_double_eq(sum_steps(), 1000000);
    ck_assert_double_eq(mean_of_all(), 500000.5);
    for (unsigned i = 0; i < curve.count; i++) {
        const struct loss_point *p = &curve.point[i];

        ck_assert_double_eq_tol(p->loss / p->steps,
                                (double)p->step - (p->steps - 1) / 2, 1e-6);
    }
}
END_TEST

START_TEST(a_training_continues_after_its_checkpoint)
{
    loss_curve_init(&curve);
    for (uint64_t step = 1; step <= 30; step++)
        loss_curve_add(&curve, step, 1);
    loss_curve_continue(&curve, 20);
    for (uint64_t step = 21; step <= 40; step++)
        loss_curve_add(&curve, step, 2);
    loss_curve_add(&curve, 40, 7); /* is known already */
    ck_assert_double_eq(sum_steps(), 40);
    ck_assert_double_eq(mean_of_all(), 1.5);
    loss_curve_continue(&curve, 0);
    ck_assert_uint_eq(curve.count, 0);
}
END_TEST

START_TEST(a_loss_that_is_no_number_is_left_out)
{
    loss_curve_init(&curve);
    loss_curve_add(&curve, 1, NAN);
    loss_curve_add(&curve, 2, INFINITY);
    ck_assert_uint_eq(curve.count, 0);
}
END_TEST

/* -- a file of metrics ------------------------------------------------------ */

#define STEPS(after, step, loss)                                                       \
    "{\"after\":" #after ",\"step\":" #step ",\"train_loss\":" #loss                   \
    ",\"restarts\":0,\"time_ms\":1}\n"
#define PASS(pass, step, loss)                                                         \
    "{\"pass\":" #pass ",\"step\":" #step ",\"train_loss\":" #loss                     \
    ",\"train_accuracy\":0.5}\n"

static const struct {
    const char *what, *text;
    unsigned points;
    double steps, mean;
} files[] = {
    { "steps", STEPS(0, 5, 3) STEPS(5, 10, 1), 2, 10, 2 },
    { "a restart from step 5", STEPS(0, 5, 3) STEPS(5, 10, 9) STEPS(5, 10, 1), 2, 10,
      2 },
    { "a second training", STEPS(0, 5, 3) PASS(1, 5, 3) STEPS(0, 5, 1), 1, 5, 1 },
    { "steps and passes", STEPS(0, 5, 3) PASS(1, 7, 2) STEPS(5, 10, 1), 2, 10, 2 },
    { "passes", PASS(1, 10, 3) PASS(2, 20, 1), 2, 20, 2 },
    { "a pass that is done again", PASS(1, 10, 3) PASS(2, 20, 9) PASS(2, 20, 1), 2, 20,
      2 },
    { "a second training's passes", PASS(1, 10, 3) PASS(2, 20, 9) PASS(1, 10, 1), 1, 10,
      1 },
    { "other lines", "{}\nnothing\n{\"step\":9}\n" STEPS(0, 5, 3) "{\"after\":5,\"st",
      1, 5, 3 },
    { "nothing", "", 0, 0, 0 },
};
#define FILES (sizeof(files) / sizeof(files[0]))

START_TEST(a_file_of_metrics_is_read)
{
    char path[] = "/tmp/test-loss-XXXXXX";
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, files[_i].text, strlen(files[_i].text)),
                     (ssize_t)strlen(files[_i].text));
    close(fd);
    loss_curve_init(&curve);
    loss_curve_read(&curve, path);
    unlink(path);
    ck_assert_msg(curve.count == files[_i].points, "%s: %u points", files[_i].what,
                  curve.count);
    ck_assert_msg(sum_steps() == files[_i].steps, "%s: %g steps", files[_i].what,
                  sum_steps());
    if (curve.count > 0)
        ck_assert_msg(mean_of_all() == files[_i].mean, "%s: %g", files[_i].what,
                      mean_of_all());
}
END_TEST

START_TEST(a_file_that_is_not_there_tells_nothing)
{
    loss_curve_init(&curve);
    loss_curve_read(&curve, "/nowhere/metrics");
    ck_assert_uint_eq(curve.count, 0);
}
END_TEST

/* -- the picture ------------------------------------------------------------ */

static char *draw(int columns, bool utf8)
{
    const struct picture_style style = { .columns = columns, .utf8 = utf8 };

    return loss_picture_draw(&curve, &style);
}

static void add_losses(unsigned count, double first, double factor, double addend)
{
    loss_curve_init(&curve);
    for (unsigned i = 0; i < count; i++)
        loss_curve_add(&curve, i + 1, first * pow(factor, i) + addend * i);
}

START_TEST(a_straight_fall_is_a_straight_line)
{
    char *text;

    add_losses(18, 20, 1, -1);
    text = draw(44, false);
    ck_assert_str_eq(text, "      20 +'-..\n"
                           "         |    '-..\n"
                           "         |        '-..\n"
                           "         |            '--.\n"
                           "         |                '--.\n"
                           "       3 +                    '--. 3\n"
                           "         +------------------------\n"
                           "          step 1      loss      18");
    free(text);
}
END_TEST

START_TEST(what_spans_a_decade_has_a_logarithmic_axis)
{
    char *text;

    add_losses(24, 5, .9, 0);
    text = draw(60, true);
    ck_assert_ptr_nonnull(strstr(text, "log scale"));
    free(text);
    add_losses(24, 5, .95, 0);
    text = draw(60, true);
    ck_assert_ptr_null(strstr(text, "log scale"));
    free(text);
}
END_TEST

START_TEST(there_is_no_picture_of_one_point_or_without_room)
{
    add_losses(1, 5, 1, 0);
    ck_assert_ptr_null(draw(80, true));
    add_losses(50, 5, .9, 0);
    ck_assert_ptr_null(draw(43, true));
    ck_assert_ptr_null(draw(0, true));
}
END_TEST

static int columns_of(const char *line, const char *end)
{
    int columns = 0;

    for (; line < end; line++)
        columns += ((unsigned char)*line & 0xc0) != 0x80;
    return columns;
}

START_TEST(a_picture_fits_into_each_terminal)
{
    static const struct {
        unsigned count;
        double first, factor, addend;
    } curves[] = { { 2, 1, 1, 0 },       { 2, 1, 1e-9, 0 },   { 3, 123456789, 1, -1 },
                   { 512, 2.3, .99, 0 }, { 400, 2.3, 1, 0 },  { 77, 0, 1, 0 },
                   { 40, 1e-8, .5, 0 },  { 40, -5, 1, .001 }, { 5000, .1, .9999, 0 } };

    for (size_t i = 0; i < sizeof(curves) / sizeof(curves[0]); i++)
        for (int columns = 44; columns < 120; columns += 5)
            for (int utf8 = 0; utf8 < 2; utf8++) {
                char *text;
                int lines = 0;

                add_losses(curves[i].count, curves[i].first, curves[i].factor,
                           curves[i].addend);
                text = draw(columns, utf8);
                ck_assert_ptr_nonnull(text);
                for (const char *at = text; at; lines++) {
                    const char *end = strchrnul(at, '\n');

                    ck_assert_msg(columns_of(at, end) < columns, "%d columns:\n%s",
                                  columns, text);
                    at = *end ? end + 1 : NULL;
                }
                ck_assert_int_eq(lines, PICTURE_ROWS + 2);
                free(text);
            }
}
END_TEST

START_TEST(the_locale_says_whether_there_is_utf8)
{
    unsetenv("LC_ALL");
    unsetenv("LC_CTYPE");
    unsetenv("LANG");
    ck_assert(!locale_is_utf8());
    setenv("LANG", "de_DE.UTF-8", 1);
    ck_assert(locale_is_utf8());
    setenv("LC_ALL", "C", 1);
    ck_assert(!locale_is_utf8());
    setenv("LC_ALL", "C.utf8", 1);
    ck_assert(locale_is_utf8());
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("train_loss_picture");
    TCase *tc = tcase_create("train_loss_picture");

    tcase_add_test(tc, a_long_training_keeps_its_means);
    tcase_add_test(tc, a_training_continues_after_its_checkpoint);
    tcase_add_test(tc, a_loss_that_is_no_number_is_left_out);
    tcase_add_loop_test(tc, a_file_of_metrics_is_read, 0, FILES);
    tcase_add_test(tc, a_file_that_is_not_there_tells_nothing);
    tcase_add_test(tc, a_straight_fall_is_a_straight_line);
    tcase_add_test(tc, what_spans_a_decade_has_a_logarithmic_axis);
    tcase_add_test(tc, there_is_no_picture_of_one_point_or_without_room);
    tcase_add_test(tc, a_picture_fits_into_each_terminal);
    tcase_add_test(tc, the_locale_says_whether_there_is_utf8);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
