/* SPDX-License-Identifier: MIT */
#include "tests/worlds/html_check.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "rendezvous/common/base/text.h"

#define DEPTH_MAX 32
#define IDS_MAX 1024
#define NAME_SIZE 16
#define ID_SIZE 32

struct html_check {
    const char *at;
    char open[DEPTH_MAX][NAME_SIZE];
    unsigned depth, elements; /* at the top */
    char id[IDS_MAX][ID_SIZE];
    unsigned ids, scripts;
};

static bool skip_text(struct html_check *c, const char *text)
{
    bool is_there = strncmp(c->at, text, strlen(text)) == 0;

    c->at += is_there ? strlen(text) : 0;
    return is_there;
}

static const char *check_entity(struct html_check *c)
{
    static const char *const known[] = { "&amp;",  "&lt;",  "&gt;",
                                         "&quot;", "&#39;", "&#160;" };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (skip_text(c, known[i]))
            return NULL;
    return "an unknown entity";
}

static const char *read_name(struct html_check *c, char *name)
{
    size_t size = strspn(c->at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789-");

    if (size == 0 || size >= NAME_SIZE * 2)
        return "no name";
    memcpy(name, c->at, size);
    name[size] = '\0';
    c->at += size;
    return NULL;
}

static const char *check_id(struct html_check *c, const char *value, size_t size)
{
    if (size == 0 || size >= ID_SIZE || c->ids == IDS_MAX)
        return "an id of that length";
    memcpy(c->id[c->ids], value, size);
    c->id[c->ids][size] = '\0';
    for (unsigned i = 0; i < c->ids; i++)
        if (strcmp(c->id[i], c->id[c->ids]) == 0)
            return "the same id twice";
    c->ids++;
    return NULL;
}

static const char *check_attribute(struct html_check *c)
{
    char name[NAME_SIZE * 2];
    const char *wrong = read_name(c, name), *value;

    if (wrong || !skip_text(c, "=\""))
        return wrong ? wrong : "no quoted value";
    value = c->at;
    while (*c->at && *c->at != '"' && !wrong)
        if (*c->at == '<' || *c->at == '>')
            wrong = "a bracket in a value";
        else if (*c->at == '&')
            wrong = check_entity(c);
        else
            c->at++;
    if (wrong || *c->at != '"')
        return wrong ? wrong : "a value without an end";
    if (strncmp(name, "on", 2) == 0 || strcmp(name, "style") == 0 ||
        strcmp(name, "src") == 0 || strcmp(name, "srcdoc") == 0)
        return "an attribute that is not allowed";
    if (strcmp(name, "href") == 0 && *value != '#' && strncmp(value, "data:", 5) != 0 &&
        (*value != '/' || value[1] == '/'))
        return "a link to elsewhere";
    if (strcmp(name, "id") == 0)
        wrong = check_id(c, value, (size_t)(c->at - value));
    c->at++;
    return wrong;
}

/* Style and script are raw text up to their end. */
static const char *skip_raw(struct html_check *c, const char *end)
{
    const char *found = strstr(c->at, end);

    if (!found || strstr(c->at, "</") != found)
        return "raw text without an end";
    c->at = found;
    return NULL;
}

static const char *check_start(struct html_check *c)
{
    char name[NAME_SIZE * 2];
    const char *wrong = read_name(c, name);

    while (!wrong && skip_text(c, " "))
        wrong = check_attribute(c);
    if (wrong)
        return wrong;
    c->elements += c->depth == 0;
    if (skip_text(c, "/>"))
        return NULL;
    if (!skip_text(c, ">"))
        return "an element without a bracket";
    if (strlen(name) >= NAME_SIZE || c->depth == DEPTH_MAX)
        return "elements too deep";
    strcpy(c->open[c->depth++], name);
    if (strcmp(name, "script") == 0)
        return c->scripts++ ? "a second script" : skip_raw(c, "</script>");
    return strcmp(name, "style") == 0 ? skip_raw(c, "</style>") : NULL;
}

static const char *check_end(struct html_check *c)
{
    char name[NAME_SIZE * 2];
    const char *wrong = read_name(c, name);

    if (wrong || !skip_text(c, ">"))
        return wrong ? wrong : "an end without a bracket";
    return c->depth && strcmp(c->open[--c->depth], name) == 0 ? NULL
                                                              : "another end is due";
}

static const char *check_all(struct html_check *c)
{
    const char *wrong = NULL;

    if (!text_is_utf8(c->at, strlen(c->at)))
        return "no UTF-8";
    while (*c->at && !wrong)
        if (skip_text(c, "</"))
            wrong = check_end(c);
        else if (skip_text(c, "<"))
            wrong = check_start(c);
        else if (*c->at == '&')
            wrong = check_entity(c);
        else if (*c->at == '>' ||
                 (iscntrl((unsigned char)*c->at) && *c->at != '\n' && *c->at != '\t'))
            wrong = "a raw character";
        else
            c->at++;
    return wrong ? wrong : c->depth ? "an element without an end" : NULL;
}

const char *html_check_document(const char *html, const char **at)
{
    static struct html_check c;
    const char *wrong = "no document type";

    c = (struct html_check){ .at = html };
    if (skip_text(&c, "<!DOCTYPE html>"))
        wrong = check_all(&c);
    *at = c.at;
    return wrong ? wrong : c.elements != 1 ? "not one element" : NULL;
}

const char *html_check_element(const char *html, const char *id, const char **at)
{
    static struct html_check c;
    const char *wrong;

    c = (struct html_check){ .at = html };
    wrong = check_all(&c);
    *at = c.at;
    if (wrong)
        return wrong;
    if (c.elements != 1 || c.scripts || !c.ids || strcmp(c.id[0], id) != 0)
        return "not one element with its id";
    return NULL;
}
