/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_UI_LOSS_PICTURE_H
#define WORKER_LIB_TRAIN_UI_LOSS_PICTURE_H

#include <stdbool.h>

#include "worker-lib/train/ui/loss_curve.h"

struct picture_style {
    int columns; /* of the terminal */
    bool colour, utf8;
};

#define PICTURE_ROWS 6 /* and two below them */

/* Eight lines without the last line's end, to be freed; NULL if there are too few
 * points or columns for a picture. The loss is on a logarithmic axis if it spans a
 * decade. */
char *loss_picture_draw(const struct loss_curve *c, const struct picture_style *style);

/* Whether the environment's locale is of UTF-8. */
bool locale_is_utf8(void);

#endif
