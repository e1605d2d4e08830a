/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ctl_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "launcher/crunctl/ui/terminal.h"

static char *render_frame(const struct ctl_command *command,
                          const struct ctl_options *o, ctl_run_fn *run)
{
    struct ctl_options own = *o;
    char *frame = NULL;
    struct err e;
    size_t size;

    own.out = open_memstream(&frame, &size);
    if (!own.out)
        return NULL;
    if (run(command, &own, &e) != CTL_EXIT_OK)
        fprintf(own.out, "%s\n", e.text);
    fclose(own.out);
    return frame;
}

static void repeat_frames(const struct ctl_command *command,
                          const struct ctl_options *o, ctl_run_fn *run)
{
    const struct timespec pause = { .tv_sec = (time_t)(o->watch_ms / 1000),
                                    .tv_nsec = (long)(o->watch_ms % 1000) * 1000000 };

    do {
        char *frame = render_frame(command, o, run);

        printf("%s%s", frame ? frame : "", o->json ? "" : "\n");
        free(frame);
    } while (fflush(stdout) == 0 && nanosleep(&pause, NULL) == 0);
}

int ctl_watch(const struct ctl_command *command, const struct ctl_options *o,
              ctl_run_fn *run)
{
    struct screen *s = o->json ? NULL : screen_open();
    bool goes_on = s != NULL;

    if (!s)
        repeat_frames(command, o, run);
    while (goes_on) {
        char *frame = render_frame(command, o, run);

        screen_draw(s, frame ? frame : "");
        free(frame);
        goes_on = screen_wait(s, o->watch_ms);
    }
    screen_close(s);
    return CTL_EXIT_OK;
}
