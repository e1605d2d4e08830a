/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/page/html.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "rendezvous/common/base/text.h"

static const char *entity_of(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

/* How many characters at the beginning can be written as they are, all at once. */
static size_t plain_size(const char *text, size_t left)
{
    size_t size = 0;

    while (size < left && text[size] >= ' ' && text[size] <= '~' &&
           !entity_of(text[size]))
        size++;
    return size;
}

void html_bytes(FILE *out, const char *text, size_t left)
{
    size_t size;

    for (; left; text += size, left -= size) {
        const char *entity = entity_of(*text);

        size = plain_size(text, left);
        if (size) {
            fwrite(text, 1, size, out);
            continue;
        }
        size = entity || *text == '\n' || *text == '\t'
                   ? 1
                   : text_printable_size(text, left);
        if (entity)
            fputs(entity, out);
        else if (size)
            fwrite(text, 1, size, out);
        else
            fputs("\xef\xbf\xbd", out), size = 1;
    }
}

void html_text(FILE *out, const char *text)
{
    if (text)
        html_bytes(out, text, strlen(text));
}

/* One conversion; returns the format after it. */
static const char *print_value(FILE *out, const char *fmt, va_list *args)
{
    size_t size = 1 + strspn(fmt + 1, "0123456789.lz");
    char spec[16], last = fmt[size];

    snprintf(spec, sizeof(spec), "%.*s", (int)size + 1, fmt);
    if (last == 's')
        html_text(out, va_arg(*args, const char *));
    else if (last == 'c')
        html_text(out, (char[]){ (char)va_arg(*args, int), '\0' });
    else if (last == 'f' || last == 'g')
        fprintf(out, spec, va_arg(*args, double));
    else if (strchr(spec, 'l') || strchr(spec, 'z'))
        fprintf(out, "%lu", va_arg(*args, unsigned long));
    else if (last == 'd' || last == 'u')
        fprintf(out, spec, va_arg(*args, int));
    else
        fputc('%', out);
    return fmt + size + (last != '\0');
}

void html_print(FILE *out, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    while (*fmt) {
        size_t plain = strcspn(fmt, "%");

        fwrite(fmt, 1, plain, out);
        fmt += plain;
        if (*fmt)
            fmt = print_value(out, fmt, &args);
    }
    va_end(args);
}

void html_path_segment(FILE *out, const char *text)
{
    for (; *text; text++)
        if (isascii((unsigned char)*text) &&
            (isalnum((unsigned char)*text) || strchr("-_.", *text)))
            fputc(*text, out);
        else
            fprintf(out, "%%%02X", (unsigned char)*text);
}
