/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/security/key.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define KEY_PREFIX "crun1"
#define ID_BYTES ((KEY_ID_SIZE - 1) / 2)
#define END_DIGITS_MAX 15

static int hex_digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* False unless text is hex of exactly that many bytes. */
static bool parse_key_hex(const char *text, size_t length, uint8_t *out, size_t bytes)
{
    if (length != 2 * bytes)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        int high = hex_digit_value(text[2 * i]), low = hex_digit_value(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static void format_key_hex(const uint8_t *data, size_t bytes, char *out)
{
    for (size_t i = 0; i < bytes; i++) {
        out[2 * i] = "0123456789abcdef"[data[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[data[i] & 15];
    }
    out[2 * bytes] = '\0';
}

void key_generate(int64_t expires, struct key *out)
{
    uint8_t id[ID_BYTES];

    *out = (struct key){ .access = ACCESS_AGENT, .expires = expires };
    /* such small requests are never cut short, and cannot fail after boot */
    if (getrandom(id, sizeof(id), 0) != (ssize_t)sizeof(id) ||
        getrandom(out->secret, sizeof(out->secret), 0) != (ssize_t)sizeof(out->secret))
        abort();
    format_key_hex(id, sizeof(id), out->id);
}

/* The field up to the next colon or the end. */
struct key_field {
    const char *text;
    size_t length;
};

static struct key_field next_key_field(const char **at, size_t *left)
{
    struct key_field f = { .text = *at };
    const char *colon = memchr(*at, ':', *left);

    f.length = colon ? (size_t)(colon - *at) : *left;
    *at += f.length + (colon ? 1 : 0);
    *left -= f.length + (colon ? 1 : 0);
    return f;
}

static bool parse_key_end(struct key_field f, int64_t *expires)
{
    *expires = 0;
    if (f.length == 0 || f.length > END_DIGITS_MAX || (f.length > 1 && *f.text == '0'))
        return false;
    for (size_t i = 0; i < f.length; i++) {
        if (f.text[i] < '0' || f.text[i] > '9')
            return false;
        *expires = *expires * 10 + (f.text[i] - '0');
    }
    return true;
}

/* The four fields that a key and its identity have in common. */
static bool parse_identity_fields(const char **at, size_t *left,
                                  struct key_identity *out)
{
    struct key_field prefix = next_key_field(at, left), id = next_key_field(at, left);
    struct key_field access = next_key_field(at, left), end = next_key_field(at, left);
    uint8_t bytes[ID_BYTES];
    char word[16];

    if (prefix.length != strlen(KEY_PREFIX) ||
        memcmp(prefix.text, KEY_PREFIX, prefix.length) != 0 ||
        !parse_key_hex(id.text, id.length, bytes, sizeof(bytes)) ||
        access.length >= sizeof(word))
        return false;
    format_key_hex(bytes, sizeof(bytes), out->id);
    snprintf(word, sizeof(word), "%.*s", (int)access.length, access.text);
    return access_parse(word, &out->access) && out->access != ACCESS_NONE &&
           strlen(word) == access.length && parse_key_end(end, &out->expires);
}

bool key_identity_parse(const char *text, struct key_identity *out)
{
    size_t left = strlen(text);

    return left > 0 && text[left - 1] != ':' &&
           parse_identity_fields(&text, &left, out) && left == 0;
}

int key_parse(const char *line, size_t size, struct key *out, struct err *e)
{
    struct key_identity identity;
    const char *at = line;
    size_t left = size;

    memset(out, 0, sizeof(*out));
    if (size < 4 || memcmp(line, KEY_PREFIX, 4) != 0)
        return err_set(e, "this is not a key (crunctl keygen makes one)");
    if (size > 5 && line[4] >= '2' && line[4] <= '9')
        return err_set(e, "this is a key of a later version of crun");
    if (!parse_identity_fields(&at, &left, &identity) ||
        !parse_key_hex(at, left, out->secret, sizeof(out->secret))) {
        key_wipe(out);
        return err_set(e, "this key was cut or damaged: copy it again");
    }
    memcpy(out->id, identity.id, sizeof(out->id));
    out->access = identity.access;
    out->expires = identity.expires;
    return 0;
}

static int format_identity(const struct key *k, char *buf, size_t size)
{
    return snprintf(buf, size, KEY_PREFIX ":%s:%s:%" PRId64, k->id,
                    access_names[k->access], k->expires);
}

char *key_format(const struct key *k, char buf[KEY_TEXT_SIZE])
{
    int n = format_identity(k, buf, KEY_TEXT_SIZE);

    buf[n++] = ':';
    format_key_hex(k->secret, sizeof(k->secret), buf + n);
    n += 2 * TLS_SECRET_BYTES;
    memcpy(buf + n, "\n", 2);
    return buf;
}

int key_derive(const struct key *from, enum access access, int64_t expires,
               struct key *out, struct err *e)
{
    char context[48];
    int n;

    if (access == from->access && expires == from->expires) {
        *out = *from;
        return 0;
    }
    if (from->access != ACCESS_AGENT)
        return err_set(e, "no key is made from one of the role \"%s\": use an agent's",
                       access_names[from->access]);
    if (from->expires && (!expires || expires > from->expires))
        return err_set(e, "the key that it is made from ends before it");
    n = snprintf(context, sizeof(context), "%s:%" PRId64, access_names[access],
                 expires);
    memcpy(out->id, from->id, sizeof(out->id));
    out->access = access;
    out->expires = expires;
    tls_hkdf(from->secret, "crun role", context, (size_t)n, out->secret);
    return 0;
}

void key_psk(const struct key *k, struct tls_psk *out)
{
    format_identity(k, out->identity, sizeof(out->identity));
    tls_hkdf(k->secret, "crun tls", "", 0, out->secret);
}

bool key_has_ended(int64_t expires, int64_t now)
{
    return expires && expires <= now;
}

char *key_format_date(int64_t at, char buf[KEY_DATE_SIZE])
{
    time_t t = (time_t)at;
    struct tm tm;

    if (at == 0 || !gmtime_r(&t, &tm) ||
        strftime(buf, KEY_DATE_SIZE, "%Y-%m-%d %H:%M UTC", &tm) == 0)
        snprintf(buf, KEY_DATE_SIZE, at == 0 ? "never" : "a far day");
    return buf;
}

void key_wipe(struct key *k)
{
    explicit_bzero(k, sizeof(*k));
}
