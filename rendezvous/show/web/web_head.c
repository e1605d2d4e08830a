/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/web/web_head.h"

#include <string.h>
#include <strings.h>

#include "rendezvous/common/base/limits.h"
#include "rendezvous/show/web/limits.h"

/* -- lines ------------------------------------------------------------------------ */

static const char *find_byte_fault(const struct web_head *h, char c)
{
    if (h->ended)
        return "it goes on after its head";
    if ((c == '\n') != h->after_cr)
        return "a line ends in another way than by CR LF";
    if (((unsigned char)c < ' ' && c != '\r' && c != '\n' && c != '\t') || c == 0x7f)
        return "it has control characters";
    if (h->line == 0 && (c == ' ' || c == '\t'))
        return "a header goes on in the next line";
    if (h->line == 0 && h->lines == 0 && c == '\r')
        return "it begins with an empty line";
    return h->lines > WEB_HEAD_LINES_MAX ? "it has too many headers" : NULL;
}

void web_head_add(struct web_head *h, const char *bytes, size_t size)
{
    for (size_t i = 0; i < size && !h->fault; i++) {
        char c = bytes[i];

        h->fault = find_byte_fault(h, c);
        if (c == '\n') {
            h->ended = h->line == 0;
            h->lines++;
            h->line = 0;
        } else if (c != '\r') {
            h->line++;
        }
        h->after_cr = c == '\r';
    }
}

/* -- names ------------------------------------------------------------------------ */

/* "name", "name:80", "10.0.0.1:80" or "[::1]:80" without the port. */
static bool host_without_port(const char *host, char *name, size_t size)
{
    const char *end = *host == '[' ? strchr(host, ']') : host + strcspn(host, ":");
    size_t skip = *host == '[', length;

    if (!end)
        return false;
    length = (size_t)(end - host) - skip;
    end += skip;
    if (length == 0 || length >= size ||
        (*end && (*end != ':' || !net_is_port(end + 1))))
        return false;
    memcpy(name, host + skip, length);
    name[length] = '\0';
    return true;
}

bool web_host_is_ours(const char *host, const struct web_names *names,
                      const struct net_addr *own)
{
    char name[HOST_NAME_MAX_BYTES + 1];
    struct net_addr number;
    struct err e;

    if (!host_without_port(host, name, sizeof(name)))
        return false;
    if (net_parse_host(name, 0, &number, &e) == 0)
        return net_is_loopback(&number) || net_same_host(&number, own) ||
               net_is_local(&number);
    if (*host == '[')
        return false;
    for (unsigned i = 0; i < names->count; i++)
        if (strcasecmp(names->name[i], name) == 0)
            return true;
    return strcasecmp(name, "localhost") == 0;
}

bool web_origin_is_host(const char *origin, const char *host)
{
    if (strncmp(origin, "http://", 7) == 0)
        return strcasecmp(origin + 7, host) == 0;
    return strncmp(origin, "https://", 8) == 0 && strcasecmp(origin + 8, host) == 0;
}

bool web_cookie_get(const char *header, const char *name, char *value, size_t size)
{
    size_t length = strlen(name);

    while (*header) {
        header += strspn(header, "; ");
        if (strncmp(header, name, length) == 0 && header[length] == '=') {
            const char *from = header + length + 1;
            size_t bytes = strcspn(from, "; ");

            if (bytes >= size)
                return false;
            memcpy(value, from, bytes);
            value[bytes] = '\0';
            return true;
        }
        header += strcspn(header, ";");
    }
    return false;
}
