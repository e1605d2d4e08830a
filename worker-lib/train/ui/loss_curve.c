/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/ui/loss_curve.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#define METRICS_LINE_MAX 1024

void loss_curve_init(struct loss_curve *c)
{
    c->count = 0;
    c->steps_each = 1;
    c->last = 0;
}

void loss_curve_continue(struct loss_curve *c, uint64_t after)
{
    while (c->count > 0 && c->point[c->count - 1].step > after)
        c->count--;
    if (c->count == 0)
        c->steps_each = 1;
    c->last = after;
}

static void halve_points(struct loss_curve *c)
{
    for (unsigned i = 0; i < c->count / 2; i++) {
        const struct loss_point *a = &c->point[2 * i], *b = a + 1;

        c->point[i] = (struct loss_point){ .step = b->step,
                                           .steps = a->steps + b->steps,
                                           .loss = a->loss + b->loss };
    }
    c->count /= 2;
    c->steps_each *= 2;
}

void loss_curve_add(struct loss_curve *c, uint64_t step, double loss)
{
    struct loss_point *p = c->count > 0 ? &c->point[c->count - 1] : NULL;
    double steps = (double)(step - c->last);

    if (step <= c->last || !isfinite(loss))
        return;
    if (!p || p->step != c->last || p->steps + steps > c->steps_each) {
        if (c->count == LOSS_CURVE_POINTS)
            halve_points(c);
        p = &c->point[c->count++];
        *p = (struct loss_point){ .step = step };
    }
    p->step = c->last = step;
    p->steps += steps;
    p->loss += steps * loss;
}

/* Also of a pass that was done again. */
static void add_pass(struct loss_curve *c, uint64_t step, double loss)
{
    if (step <= c->last)
        loss_curve_continue(c, step - 1);
    c->last = c->count > 0 ? c->point[c->count - 1].step : 0;
    loss_curve_add(c, step, loss);
}

/* Lines about passes count if there are none about steps. */
void loss_curve_read(struct loss_curve *c, const char *path)
{
    FILE *file = fopen(path, "r");
    char line[METRICS_LINE_MAX];
    bool tells_steps = false;
    uint64_t after, step;
    double loss;

    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line,
                   "{\"after\":%" SCNu64 ",\"step\":%" SCNu64 ",\"train_loss\":%lf",
                   &after, &step, &loss) == 3) {
            tells_steps = true;
            loss_curve_continue(c, after);
            loss_curve_add(c, step, loss);
        } else if (!tells_steps &&
                   sscanf(line, "{\"pass\":%*u,\"step\":%" SCNu64 ",\"train_loss\":%lf",
                          &step, &loss) == 2) {
            add_pass(c, step, loss);
        }
    }
    if (file)
        fclose(file);
}
