/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ui/top.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/crunctl/ui/top_frame.h"
#include "launcher/crunctl/ui/top_keys.h"
#include "rendezvous/common/base/clock.h"

#define ESC_MS 50 /* then no more of a sequence comes, also over a slow line */
#define IDLE_MS 3600000
#define OTHER_LINES 4 /* of a frame: title, heading, selected row, keys */

struct top {
    struct screen *screen;
    struct top_asker *asker;
    struct top_look *look;
    struct top_view view;
    struct top_rows rows;
    char typed[64]; /* keys that are not whole */
    size_t size;
};

static void draw_top(struct top *t)
{
    struct terminal terminal = terminal_look();
    struct top_view *v = &t->view;
    size_t size, others = OTHER_LINES - 2 * (v->page != TOP_LIST);
    char *frame;
    FILE *out = open_memstream(&frame, &size);

    terminal.columns = terminal.columns ? terminal.columns : 80;
    terminal.rows = terminal.rows ? terminal.rows : 24;
    v->height = terminal.rows > others ? terminal.rows - others : 1;
    top_view_arrange(v, t->look, &t->rows);
    top_frame_print(v, t->look, &t->rows, &terminal, out);
    fclose(out);
    screen_draw(t->screen, frame);
    free(frame);
}

/* An earlier look stays as long as a newer one has only an error, and a node until it
 * has been asked again. */
static void take_look(struct top *t)
{
    struct top_look *look = top_asker_take(t->asker);

    if (!look)
        return;
    if (*look->error && t->look->jobs.count) {
        memcpy(t->look->error, look->error, sizeof(look->error));
        top_look_free(look);
        return;
    }
    if (!look->node) {
        look->node = t->look->node;
        t->look->node = NULL;
    }
    top_look_free(t->look);
    t->look = look;
}

static void press_keys(struct top *t, bool is_all)
{
    size_t used, at = 0;
    int key;

    while ((key = top_key_next(t->typed + at, t->size - at, is_all, &used)) != 0) {
        if (key == ('L' & 0x1f))
            screen_forget(t->screen);
        top_view_press(&t->view, t->look, &t->rows, key);
        top_view_arrange(&t->view, t->look, &t->rows);
        at += used;
    }
    t->size -= at;
    memmove(t->typed, t->typed + at, t->size);
    if (t->size == sizeof(t->typed))
        t->size = 0;
    top_asker_open(t->asker, t->view.page == TOP_LIST || t->view.page == TOP_HELP
                                 ? ""
                                 : t->view.opened);
}

void top_show(struct screen *s, const struct top_source *source, uint64_t every_ms)
{
    struct top t = { .screen = s, .asker = top_asker_start(source, every_ms) };
    enum screen_news news = SCREEN_RESIZE;
    static struct top_look nothing = { .error = "asking ..." };

    t.look = calloc(1, sizeof(*t.look));
    *t.look = nothing;
    while (news != SCREEN_END && !t.view.quits) {
        size_t size = sizeof(t.typed) - t.size;

        draw_top(&t);
        news = screen_wait(s, clock_ms() + (t.size ? ESC_MS : IDLE_MS),
                           top_asker_fd(t.asker), t.typed + t.size, &size);
        if (news == SCREEN_CALL)
            take_look(&t);
        else if (news == SCREEN_TYPED)
            t.size += size;
        if (t.size)
            press_keys(&t, news == SCREEN_TIME);
    }
    top_look_free(t.look);
    top_view_fini(&t.view);
    top_rows_fini(&t.rows);
}
