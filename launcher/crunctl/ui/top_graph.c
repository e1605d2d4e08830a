/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ui/top_graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LEVELS 8

static const char *const heights[2][LEVELS] = {
    { "_", "_", ".", ".", "-", "-", "=", "#" },
    { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" }
};
static const char *const widths[LEVELS] = { "", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };

static double mean_between(const float *value, size_t first, size_t end)
{
    size_t known = 0;
    double sum = 0;

    for (size_t i = first; i < end; i++)
        if (isfinite(value[i])) {
            sum += value[i];
            known++;
        }
    return known ? sum / (double)known : NAN;
}

char *top_graph_curve(const float *value, size_t count, size_t columns, bool from_zero,
                      bool utf8, char *buf, size_t size)
{
    size_t shown = count < columns ? count : columns, used = 0;
    double least = from_zero ? 0 : INFINITY, most = -INFINITY;

    for (size_t c = 0; c < shown; c++) {
        double v = mean_between(value, c * count / shown, (c + 1) * count / shown);

        least = v < least ? v : least;
        most = v > most ? v : most;
    }
    *buf = '\0';
    for (size_t c = 0; c < shown && used + 3 < size; c++) {
        double v = mean_between(value, c * count / shown, (c + 1) * count / shown);
        double height = most > least ? (v - least) / (most - least) : 0.5;
        const char *drawn = isnan(v) ? " "
                                     : heights[utf8][(int)(height * (LEVELS - 1) + .5)];

        used += (size_t)snprintf(buf + used, size - used, "%s", drawn);
    }
    return buf;
}

char *top_graph_bar(double share, size_t columns, bool utf8, char *buf, size_t size)
{
    double within = share < 0 ? 0 : share > 1 ? 1 : share;
    size_t eighths = (size_t)(within * (double)columns * LEVELS + .5), used = 0;

    *buf = '\0';
    for (size_t c = 0; c < columns && used + 3 < size; c++) {
        size_t rest = eighths > c * LEVELS ? eighths - c * LEVELS : 0;
        const char *ascii = rest >= LEVELS / 2 ? "#" : ".";
        const char *block = rest >= LEVELS ? "█" : rest ? widths[rest] : "·";

        used += (size_t)snprintf(buf + used, size - used, "%s", utf8 ? block : ascii);
    }
    return buf;
}
