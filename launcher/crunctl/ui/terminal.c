/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ui/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rendezvous/common/base/text.h"

/* -- what standard output is ------------------------------------------------------ */

static unsigned columns_of_environment(void)
{
    const char *text = getenv("COLUMNS");
    long n = text ? strtol(text, NULL, 10) : 0;

    return n > 0 && n < 10000 ? (unsigned)n : 0;
}

/* As locale(7) has it, without the tables that setlocale reads. */
static bool environment_has_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    const char *value = NULL;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !(value && *value); i++)
        value = getenv(names[i]);
    return value && (strcasestr(value, "utf-8") || strcasestr(value, "utf8"));
}

struct terminal terminal_look(void)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    struct terminal t = { .is_terminal = isatty(STDOUT_FILENO) };
    struct winsize size = { .ws_col = 0 };

    t.is_dumb = !term || !*term || strcmp(term, "dumb") == 0;
    t.utf8 = environment_has_utf8();
    if (!t.is_terminal)
        return t;
    t.colours = !t.is_dumb && !(no_color && *no_color);
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
        t.columns = size.ws_col;
        t.rows = size.ws_row;
    }
    t.columns = t.columns ? t.columns : columns_of_environment();
    return t;
}

/* -- text ------------------------------------------------------------------------- */

const char *terminal_style_begin(bool colours, enum text_style style)
{
    static const char *const begin[] = {
        [STYLE_PLAIN] = "",        [STYLE_BOLD] = "\033[1m",  [STYLE_DIM] = "\033[2m",
        [STYLE_GOOD] = "\033[32m", [STYLE_WARN] = "\033[33m", [STYLE_BAD] = "\033[31m",
    };

    return colours ? begin[style] : "";
}

const char *terminal_style_end(bool colours, enum text_style style)
{
    return colours && style != STYLE_PLAIN ? "\033[0m" : "";
}

/* The bytes of the next character, and the columns that it takes: none for a sequence
 * that sets a style. */
static size_t next_character(const char *text, size_t *columns)
{
    size_t size;

    *columns = 0;
    if (*text == '\033')
        return strcspn(text, "m") + 1;
    *columns = 1;
    size = text_utf8_size(text, strlen(text));
    return size ? size : 1;
}

size_t terminal_text_width(const char *text)
{
    size_t width = 0, columns;

    while (*text) {
        text += next_character(text, &columns);
        width += columns;
    }
    return width;
}

size_t terminal_text_fit(const char *text, size_t columns)
{
    size_t at = 0, used = 0, taken;

    while (text[at]) {
        size_t size = next_character(text + at, &taken);

        if (used + taken > columns)
            break;
        used += taken;
        at += size;
    }
    return at;
}
