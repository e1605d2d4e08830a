/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/text.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"

#define UTF8_SIZE_MAX 4 /* bytes of a character */
#define ESC 0x1b
#define BEL 0x07

/* glibc has sigabbrev_np since 2.32 only */
const char *text_signal(int signo)
{
    static const char *const names[] = {
        [SIGHUP] = "HUP",       [SIGINT] = "INT",       [SIGQUIT] = "QUIT",
        [SIGILL] = "ILL",       [SIGTRAP] = "TRAP",     [SIGABRT] = "ABRT",
        [SIGBUS] = "BUS",       [SIGFPE] = "FPE",       [SIGKILL] = "KILL",
        [SIGUSR1] = "USR1",     [SIGSEGV] = "SEGV",     [SIGUSR2] = "USR2",
        [SIGPIPE] = "PIPE",     [SIGALRM] = "ALRM",     [SIGTERM] = "TERM",
        [SIGSTKFLT] = "STKFLT", [SIGCHLD] = "CHLD",     [SIGCONT] = "CONT",
        [SIGSTOP] = "STOP",     [SIGTSTP] = "TSTP",     [SIGTTIN] = "TTIN",
        [SIGTTOU] = "TTOU",     [SIGURG] = "URG",       [SIGXCPU] = "XCPU",
        [SIGXFSZ] = "XFSZ",     [SIGVTALRM] = "VTALRM", [SIGPROF] = "PROF",
        [SIGWINCH] = "WINCH",   [SIGPOLL] = "POLL",     [SIGPWR] = "PWR",
        [SIGSYS] = "SYS",
    };

    return signo > 0 && (size_t)signo < sizeof(names) / sizeof(names[0]) ? names[signo]
                                                                         : NULL;
}

const char *text_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/*
 * The first bytes of a character of two to four bytes: the second byte's range keeps
 * out forms longer than needed, surrogates, and all above U+10FFFF.
 */
static const struct utf8_lead {
    uint8_t first, last;
    uint8_t second_min, second_max;
    uint8_t size;
} leads[] = {
    { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
    { 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 },
    { 0xee, 0xef, 0x80, 0xbf, 3 }, { 0xf0, 0xf0, 0x90, 0xbf, 4 },
    { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
};

static bool utf8_has_lead(const uint8_t *at, size_t size, const struct utf8_lead *l)
{
    if (size < l->size || at[1] < l->second_min || at[1] > l->second_max)
        return false;
    for (size_t i = 2; i < l->size; i++)
        if (at[i] < 0x80 || at[i] > 0xbf)
            return false;
    return true;
}

size_t text_utf8_size(const char *text, size_t size)
{
    const uint8_t *at = (const uint8_t *)text;

    if (size == 0)
        return 0;
    if (at[0] < 0x80)
        return 1;
    for (size_t i = 0; i < sizeof(leads) / sizeof(leads[0]); i++)
        if (at[0] >= leads[i].first && at[0] <= leads[i].last)
            return utf8_has_lead(at, size, &leads[i]) ? leads[i].size : 0;
    return 0;
}

bool text_is_utf8(const char *text, size_t size)
{
    size_t used = 0, n;

    while (used < size && (n = text_utf8_size(text + used, size - used)) > 0)
        used += n;
    return used == size;
}

char *text_cut(const char *text, char *buf, size_t size)
{
    size_t used = 0, all = strlen(text), n;

    while ((n = text_utf8_size(text + used, all - used)) > 0 && used + n < size)
        used += n;
    memcpy(buf, text, used);
    buf[used] = '\0';
    return buf;
}

/* The character of n bytes, which are valid. */
static uint32_t utf8_code_point(const char *text, size_t n)
{
    const uint8_t *at = (const uint8_t *)text;
    uint32_t c = n == 1 ? at[0] : at[0] & (0x7fu >> n);

    for (size_t i = 1; i < n; i++)
        c = c << 6 | (at[i] & 0x3f);
    return c;
}

/* Characters that do not show anything, but change what is shown around them. */
static const struct {
    uint32_t first, last;
} steering[] = {
    { 0x0080, 0x009f },                     /* controls, which some terminals obey */
    { 0x061c, 0x061c },                     /* from here on, the direction of text */
    { 0x200e, 0x200f }, { 0x2028, 0x202e }, /* line and paragraph separators too */
    { 0x2066, 0x2069 },
};

static bool code_point_steers(uint32_t c)
{
    for (size_t i = 0; i < sizeof(steering) / sizeof(steering[0]); i++)
        if (c >= steering[i].first && c <= steering[i].last)
            return true;
    return false;
}

size_t text_printable_size(const char *text, size_t size)
{
    size_t n = text_utf8_size(text, size);

    if (n == 1)
        return isprint((unsigned char)*text) ? 1 : 0;
    return n == 0 || code_point_steers(utf8_code_point(text, n)) ? 0 : n;
}

static char *escape_text(const char *text, char *buf, size_t size, bool json)
{
    size_t used = 0, n;

    for (; *text && used + 7 < size; text += n) {
        n = text_printable_size(text, strnlen(text, UTF8_SIZE_MAX));
        if (n == 0) {
            used += (size_t)snprintf(buf + used, size - used,
                                     json ? "\\u%04x" : "\\x%02x", (uint8_t)*text);
            n = 1;
            continue;
        }
        if (json && (*text == '"' || *text == '\\'))
            buf[used++] = '\\';
        memcpy(buf + used, text, n);
        used += n;
    }
    buf[used] = '\0';
    return buf;
}

char *text_printable(const char *text, char *buf, size_t size)
{
    return escape_text(text, buf, size, false);
}

char *text_json_string(const char *text, char *buf, size_t size)
{
    return escape_text(text, buf, size, true);
}

char *text_printable_json(char *json)
{
    size_t size = json ? strlen(json) : 0, length, used = 0;
    char *out = json ? xmalloc(size * strlen("\\uNNNN") + 1) : NULL;

    for (size_t at = 0; at < size; at += length) {
        unsigned char c = (unsigned char)json[at];

        length = text_printable_size(json + at, size - at);
        if (length > 0 || c == '\n' || c == '\t') { /* layout, not content */
            length = length ? length : 1;
            memcpy(out + used, json + at, length);
            used += length;
            continue;
        }
        length = text_utf8_size(json + at, size - at);
        used += (size_t)sprintf(out + used, "\\u%04x",
                                length ? utf8_code_point(json + at, length) : c);
        length = length ? length : 1;
    }
    if (out)
        out[used] = '\0';
    free(json);
    return out;
}

/* The size of an escape sequence: ESC [ ... final, ESC ] ... BEL or ESC \, or ESC, some
 * of " " to "/", and one byte more. */
static size_t escape_size(const char *s, size_t size)
{
    size_t n = 2;

    if (size < 2)
        return size;
    if (s[1] == '[') {
        while (n < size && (s[n] < 0x40 || s[n] > 0x7e) && s[n] != '\n')
            n++;
    } else if (s[1] == ']') {
        while (n < size && s[n] != BEL && s[n] != ESC && s[n] != '\n')
            n++;
        if (n + 1 < size && s[n] == ESC)
            n++;
    } else {
        for (n = 1; n < size && s[n] >= ' ' && s[n] < '0';)
            n++;
    }
    return n < size ? n + (s[n] != '\n') : size;
}

size_t text_drawn(char *s, size_t size)
{
    size_t out = 0, line = 0, n;
    bool redraw = false;

    for (size_t in = 0; in < size; in += n) {
        unsigned char c = (unsigned char)s[in];

        n = text_printable_size(s + in, size - in);
        if (c == ESC) {
            n = escape_size(s + in, size - in);
            continue;
        }
        if (c == '\r') { /* later text, if any, is drawn over the line */
            redraw = true;
            n = 1;
            continue;
        }
        if (redraw && c != '\n')
            out = line;
        redraw = false;
        if (n == 0) {
            n = 1;
            s[out++] = c == '\n' || c == '\t' ? (char)c : '?';
            line = c == '\n' ? out : line;
            continue;
        }
        memmove(s + out, s + in, n);
        out += n;
    }
    return out;
}
