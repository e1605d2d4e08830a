/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ui/top_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/crunctl/ui/top_keys.h"
#include "rendezvous/common/base/xalloc.h"

#define CTRL(letter) ((letter)&0x1f)

const char *top_sort_name(enum top_sort sort)
{
    static const char *const names[TOP_SORTS] = { "faults", "name", "step",  "steps/s",
                                                  "loss",   "GPU",  "memory" };

    return names[sort];
}

void top_view_fini(struct top_view *v)
{
    free(v->fold);
}

struct top_fold *top_view_fold(const struct top_view *v, const char *job)
{
    for (size_t i = 0; i < v->folds; i++)
        if (strcmp(v->fold[i].name, job) == 0)
            return &v->fold[i];
    return NULL;
}

/* -- the selected row ------------------------------------------------------------- */

/* Keeps it on the screen. */
static void scroll_rows(struct top_view *v, const struct top_rows *rows)
{
    size_t last = rows->count > v->height ? rows->count - v->height : 0;

    v->first = v->at < v->first ? v->at : v->first;
    if (v->height && v->at >= v->first + v->height)
        v->first = v->at - v->height + 1;
    v->first = v->first > last ? last : v->first;
}

/* Where it is gone, the one in its place is selected. */
void top_view_arrange(struct top_view *v, const struct top_look *look,
                      struct top_rows *rows)
{
    char name[TOP_NAME_BYTES];

    top_rows_fill(rows, look, v);
    if (!*v->chosen)
        v->at = 0;
    for (size_t i = 0; *v->chosen && i < rows->count; i++)
        if (top_row_takes_cursor(&rows->row[i]) &&
            strcmp(top_row_name(&rows->row[i], look, name, sizeof(name)), v->chosen) ==
                0) {
            v->at = i;
            break;
        }
    v->at = rows->count && v->at >= rows->count ? rows->count - 1 : v->at;
    while (v->at > 0 && !top_row_takes_cursor(&rows->row[v->at]))
        v->at--;
    scroll_rows(v, rows);
}

static void choose_row(struct top_view *v, const struct top_look *look,
                       const struct top_rows *rows, size_t at)
{
    v->at = at;
    *v->chosen = '\0';
    if (at > 0) /* else it is the worst one, whichever that will be */
        top_row_name(&rows->row[at], look, v->chosen, sizeof(v->chosen));
}

/* By so many rows, or to the first or last one; over those that take no cursor. */
static void move_cursor(struct top_view *v, const struct top_look *look,
                        const struct top_rows *rows, long by)
{
    long at = (long)v->at + by, last = (long)rows->count - 1, way = by < 0 ? -1 : 1;

    if (rows->count == 0)
        return;
    at = at < 0 ? 0 : at > last ? last : at;
    while (at >= 0 && at <= last && !top_row_takes_cursor(&rows->row[at]))
        at += way;
    if (at < 0 || at > last)
        return;
    choose_row(v, look, rows, (size_t)at);
    scroll_rows(v, rows);
}

/* How far a key moves; 0: it moves nothing. */
static long movement(int key, size_t height)
{
    const long page = height > 2 ? (long)height - 1 : 1, end = 1L << 30;
    const struct {
        int key;
        long by;
    } moves[] = { { TOP_KEY_UP, -1 },          { 'k', -1 },
                  { TOP_KEY_DOWN, 1 },         { 'j', 1 },
                  { TOP_KEY_PAGE_UP, -page },  { CTRL('b'), -page },
                  { TOP_KEY_PAGE_DOWN, page }, { CTRL('f'), page },
                  { CTRL('u'), -page / 2 },    { CTRL('d'), page / 2 },
                  { TOP_KEY_HOME, -end },      { 'g', -end },
                  { TOP_KEY_END, end },        { 'G', end } };

    for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++)
        if (moves[i].key == key)
            return moves[i].by;
    return 0;
}

/* -- keys ------------------------------------------------------------------------- */

static void toggle_fold(struct top_view *v, const struct top_look *look,
                        const struct top_rows *rows)
{
    const struct top_row *r = &rows->row[v->at];
    struct top_fold *fold = top_view_fold(v, look->more[r->job].name);
    size_t head = v->at;

    if (r->kind == TOP_ROW_ENDED || r->kind == TOP_ROW_PAST) {
        v->ended_turned = !v->ended_turned;
        while (rows->row[head].kind != TOP_ROW_ENDED)
            head--;
        choose_row(v, look, rows, head);
        return;
    }
    while (head > 0 && rows->row[head].kind != TOP_ROW_JOB)
        head--;
    if (!fold) {
        v->fold = xrealloc(v->fold, (v->folds + 1) * sizeof(*v->fold));
        fold = &v->fold[v->folds++];
        memcpy(fold->name, look->more[r->job].name, sizeof(fold->name));
    }
    fold->is_open = !rows->row[head].is_open;
    choose_row(v, look, rows, head);
}

static void open_page(struct top_view *v, const struct top_look *look,
                      const struct top_rows *rows, enum top_page page)
{
    const struct top_row *r = &rows->row[v->at];

    if (r->kind == TOP_ROW_ENDED) {
        toggle_fold(v, look, rows);
        return;
    }
    v->page = r->kind == TOP_ROW_NODE ? page : TOP_JOB;
    v->scroll = 0;
    top_row_name(r, look, v->opened, sizeof(v->opened));
}

static void type_filter(struct top_view *v, int key)
{
    size_t length = strlen(v->filter);

    if (key == '\r' || key == '\n' || key == TOP_KEY_ESC)
        v->types_filter = false;
    if (key == TOP_KEY_ESC || key == CTRL('u'))
        *v->filter = '\0';
    else if ((key == 0x7f || key == '\b') && length > 0)
        v->filter[length - 1] = '\0';
    else if (key > ' ' && key < 0x7f && length + 1 < sizeof(v->filter)) {
        v->filter[length] = (char)key;
        v->filter[length + 1] = '\0';
    }
    *v->chosen = '\0';
    v->at = 0;
}

static void change_sort(struct top_view *v, unsigned by)
{
    v->sort = (v->sort + by) % TOP_SORTS;
    *v->chosen = '\0';
}

static void press_in_list(struct top_view *v, const struct top_look *look,
                          const struct top_rows *rows, int key)
{
    if (key == '/')
        v->types_filter = true;
    else if (key == 's' || key == '>')
        change_sort(v, 1);
    else if (key == '<')
        change_sort(v, TOP_SORTS - 1);
    else if (key == 'r' || key == 'I')
        v->reversed = !v->reversed;
    else if (key == 'f')
        v->faults_only = !v->faults_only;
    else if (key == TOP_KEY_ESC) {
        *v->filter = '\0';
        v->faults_only = false;
    } else if (rows->count && key == ' ')
        toggle_fold(v, look, rows);
    else if (rows->count && (key == '\r' || key == '\n'))
        open_page(v, look, rows, TOP_NODE);
    else if (rows->count && (key == 'l' || key == 't'))
        open_page(v, look, rows, key == 'l' ? TOP_LOG : TOP_STACKS);
    else
        move_cursor(v, look, rows, movement(key, v->height));
}

static void press_in_page(struct top_view *v, int key)
{
    bool of_node = v->page == TOP_NODE || v->page == TOP_LOG || v->page == TOP_STACKS;
    long most = v->lines > v->height ? (long)(v->lines - v->height) : 0;
    long to = (long)v->scroll + movement(key, v->height);

    if (key == TOP_KEY_ESC || key == 0x7f || key == '\b') {
        v->page = v->page == TOP_LOG || v->page == TOP_STACKS ? TOP_NODE : TOP_LIST;
        v->scroll = 0;
    } else if (of_node && (key == 'l' || key == 't')) {
        v->page = key == 'l' ? TOP_LOG : TOP_STACKS;
        v->scroll = 0;
    } else {
        v->scroll = (size_t)(to < 0 ? 0 : to > most ? most : to);
    }
}

void top_view_press(struct top_view *v, const struct top_look *look,
                    const struct top_rows *rows, int key)
{
    if (v->types_filter && v->page == TOP_LIST)
        type_filter(v, key);
    else if (key == 'q' || key == 'Q' || key == CTRL('c'))
        v->quits = true;
    else if (key == '?' || key == 'h') {
        v->page = v->page == TOP_HELP ? TOP_LIST : TOP_HELP;
        v->scroll = 0;
    } else if (v->page == TOP_LIST)
        press_in_list(v, look, rows, key);
    else
        press_in_page(v, key);
}
