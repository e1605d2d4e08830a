/* SPDX-License-Identifier: MIT */
#include "rendezvous/completion/completion.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/base/text.h"
#include "rendezvous/base/xalloc.h"

#define DESCRIPTION_BYTES 70
#define NAME_BYTES 64

struct completion {
    FILE *out;
    char *stays;      /* the beginning of the word that stays as it is: "--fence=" */
    const char *word; /* the rest, which is completed */
    unsigned offered;
};

/* -- candidates ------------------------------------------------------------------- */

/* Text that steers no terminal, in one line. */
static bool is_plain_text(const char *text)
{
    size_t left = strlen(text), n = 1;

    for (; left > 0 && n > 0; left -= n, text += n)
        n = text_printable_size(text, left);
    return left == 0;
}

/* The first sentence, or less of it. */
static void print_description(const char *text, FILE *out)
{
    size_t length = strcspn(text, ".");

    while (text[length] == '.' && text[length + 1] && text[length + 1] != ' ')
        length += 1 + strcspn(text + length + 1, ".");
    if (length > DESCRIPTION_BYTES) {
        length = DESCRIPTION_BYTES;
        while (length > 0 && text[length] != ' ')
            length--;
        fprintf(out, "\t%.*s ...", (int)length, text);
    } else if (length > 0) {
        fprintf(out, "\t%.*s", (int)length, text);
    }
}

void completion_offer(struct completion *c, const char *text, const char *description)
{
    if (strncmp(text, c->word, strlen(c->word)) != 0 || !is_plain_text(text))
        return;
    fprintf(c->out, "%s%s", c->stays, text);
    print_description(description, c->out);
    fputc('\n', c->out);
    c->offered++;
}

void completion_offer_choices(struct completion *c, const char *choices)
{
    while (*choices) {
        size_t length = strcspn(choices, "|");
        char *choice = xasprintf("%.*s", (int)length, choices);

        if (islower((unsigned char)*choice) || isdigit((unsigned char)*choice))
            completion_offer(c, choice, "");
        free(choice);
        choices += length + (choices[length] == '|');
    }
}

static void keep_beginning(struct completion *c, size_t length)
{
    char *stays = xasprintf("%s%.*s", c->stays, (int)length, c->word);

    free(c->stays);
    c->stays = stays;
    c->word += length;
}

void completion_begin_list(struct completion *c)
{
    const char *comma = strrchr(c->word, ',');

    if (comma)
        keep_beginning(c, (size_t)(comma - c->word) + 1);
}

/* -- files ------------------------------------------------------------------------ */

struct name_list {
    char **name;
    size_t count;
};

static void name_list_add(struct name_list *l, char *name)
{
    l->name = xrealloc(l->name, (l->count + 1) * sizeof(*l->name));
    l->name[l->count++] = name;
}

static int compare_candidates(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Offers them in order, each once, and frees them. */
static void name_list_offer(struct name_list *l, struct completion *c)
{
    if (l->count)
        qsort(l->name, l->count, sizeof(*l->name), compare_candidates);
    for (size_t i = 0; i < l->count; i++) {
        if (i == 0 || strcmp(l->name[i - 1], l->name[i]) != 0)
            completion_offer(c, l->name[i], "");
        if (i > 0)
            free(l->name[i - 1]);
    }
    if (l->count)
        free(l->name[l->count - 1]);
    free(l->name);
}

static bool is_python_file(const char *name)
{
    size_t length = strlen(name);

    return length > 3 && strcmp(name + length - 3, ".py") == 0;
}

/* Whether the entry is offered; *is_folder. */
static bool is_offered_file(int folder, const char *name, enum completion_files kind,
                            bool *is_folder)
{
    struct stat st;

    *is_folder = false;
    if (fstatat(folder, name, &st, 0) < 0)
        return kind == COMPLETION_FILES;
    *is_folder = S_ISDIR(st.st_mode);
    switch (kind) {
    case COMPLETION_FOLDERS:
        return *is_folder;
    case COMPLETION_PROGRAMS:
        return *is_folder ||
               (S_ISREG(st.st_mode) &&
                (is_python_file(name) || faccessat(folder, name, X_OK, 0) == 0));
    default:
        return true;
    }
}

/* Names of `path` that begin so, with `typed` before them. */
static void list_folder(struct name_list *l, const char *path, const char *typed,
                        const char *begins, enum completion_files kind,
                        bool with_folders)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    bool is_folder;

    while (dir && (entry = readdir(dir))) {
        const char *name = entry->d_name;

        if (strncmp(name, begins, strlen(begins)) != 0 ||
            (*name == '.' && *begins != '.') || strcmp(name, ".") == 0 ||
            strcmp(name, "..") == 0 ||
            !is_offered_file(dirfd(dir), name, kind, &is_folder) ||
            (is_folder && !with_folders))
            continue;
        name_list_add(l, xasprintf("%s%s%s", typed, name, is_folder ? "/" : ""));
    }
    if (dir)
        closedir(dir);
}

static void offer_commands(struct completion *c)
{
    struct name_list names = { .count = 0 };
    const char *path = getenv("PATH");
    char *copy = xstrdup(path ? path : ""), *rest = copy, *folder;

    while ((folder = strsep(&rest, ":")))
        if (*folder == '/')
            list_folder(&names, folder, "", c->word, COMPLETION_PROGRAMS, false);
    free(copy);
    name_list_offer(&names, c);
}

void completion_offer_files(struct completion *c, enum completion_files kind)
{
    const char *slash = strrchr(c->word, '/'), *home = getenv("HOME");
    char *typed = xasprintf("%.*s", slash ? (int)(slash - c->word) + 1 : 0, c->word);
    bool is_home = strncmp(typed, "~/", 2) == 0 && home;
    char *path = is_home ? xasprintf("%s%s", home, typed + 1) : xstrdup(typed);
    struct name_list names = { .count = 0 };

    list_folder(&names, *path ? path : ".", typed, slash ? slash + 1 : c->word, kind,
                true);
    fputs("\tfiles\n", c->out);
    name_list_offer(&names, c);
    if (kind == COMPLETION_PROGRAMS && !slash && !c->offered && *c->word)
        offer_commands(c);
    free(typed);
    free(path);
}

/* -- flags ------------------------------------------------------------------------ */

/* Of "--name", "--name=value" or "-n": with dashes in place of underscores. */
static size_t read_flag_name(const char *word, char name[NAME_BYTES])
{
    size_t dashes = strspn(word, "-"), length = strcspn(word + dashes, "=");

    snprintf(name, NAME_BYTES, "%.*s", (int)(length < NAME_BYTES ? length : 0),
             word + dashes);
    for (char *at = name; *at; at++)
        *at = *at == '_' ? '-' : *at;
    return dashes;
}

/* The row that a word is of: by its name, the beginning of only one, or its letter. */
static const struct opt *find_flag(const struct opt *table, const char *word)
{
    char name[NAME_BYTES];
    size_t dashes = read_flag_name(word, name);
    const struct opt *found = NULL;
    unsigned matches = 0;

    for (const struct opt *o = table; o->name; o++) {
        if (dashes == 1 && name[0] && !name[1] && o->letter == name[0])
            return o;
        if ((dashes == 2 || o->one_dash) && strcmp(o->name, name) == 0)
            return o;
        if (dashes == 2 && *name && strncmp(o->name, name, strlen(name)) == 0) {
            found = o;
            matches++;
        }
    }
    return matches == 1 ? found : NULL;
}

/* The flag whose value the next word is, or NULL. */
static const struct opt *find_open_flag(const struct opt *table, const char *word)
{
    const struct opt *o = find_flag(table, word);

    return o && o->arg && !o->arg_optional && !strchr(word, '=') ? o : NULL;
}

static bool is_flag(const char *word)
{
    return word[0] == '-' && word[1];
}

size_t completion_find_word(const struct opt *table, char *const *words, size_t count)
{
    size_t i = 0;

    for (; i < count; i++) {
        if (strcmp(words[i], "--") == 0)
            return i + 1 < count ? i + 1 : count;
        if (!is_flag(words[i]))
            return i;
        i += find_open_flag(table, words[i]) != NULL;
    }
    return count;
}

/* With underscores, if that is what has been typed. */
static void offer_flags(struct completion *c, const struct opt *table)
{
    bool underscores = strchr(c->word, '_');
    char flag[NAME_BYTES + 2];

    for (const struct opt *o = table; o->name; o++) {
        if (!o->help)
            continue;
        snprintf(flag, sizeof(flag), "--%s", o->name);
        for (char *at = flag + 2; underscores && *at; at++)
            *at = *at == '-' ? '_' : *at;
        completion_offer(c, flag, o->help);
    }
    for (const struct opt *o = table; o->name && !c->word[1]; o++)
        if (o->help && o->letter) {
            snprintf(flag, sizeof(flag), "-%c", o->letter);
            completion_offer(c, flag, o->help);
        }
}

static void offer_values(struct completion *c, const struct completion_rules *rules,
                         const struct opt *o)
{
    if (rules->offer_value && rules->offer_value(c, o))
        return;
    if (strcmp(o->arg, "FILE") == 0)
        completion_offer_files(c, COMPLETION_FILES);
    else if (strcmp(o->arg, "DIR") == 0)
        completion_offer_files(c, COMPLETION_FOLDERS);
    else
        completion_offer_choices(c, o->arg);
}

/* -- words ------------------------------------------------------------------------ */

/* The words before the last that are no flags, their count, and the flag whose value
 * the last one is. */
struct words_before {
    char **word;
    size_t count;
    const struct opt *open;
    bool flags_ended;
};

static struct words_before sort_words(const struct opt *table, char *const *words,
                                      size_t count)
{
    struct words_before b = { .word = xcalloc(count + 1, sizeof(*b.word)) };

    for (size_t i = 0; i < count; i++) {
        b.open = NULL;
        if (!b.flags_ended && strcmp(words[i], "--") == 0) {
            b.flags_ended = true;
        } else if (b.flags_ended || !is_flag(words[i])) {
            b.word[b.count++] = words[i];
        } else {
            b.open = find_open_flag(table, words[i]);
            if (b.open && i + 1 < count) {
                b.open = NULL;
                i++;
            }
        }
    }
    return b;
}

void completion_answer(const struct completion_rules *rules, char *const *words,
                       size_t count, FILE *out)
{
    struct completion c = { .out = out, .stays = xstrdup(""), .word = "" };
    size_t first = count ? completion_find_word(rules->table, words, count - 1) : 0;
    const struct opt *of_value;
    struct words_before b;

    if (rules->stop_at_word && count && first + 1 < count) {
        fprintf(out, "\trest %zu\n", first);
        free(c.stays);
        return;
    }
    b = sort_words(rules->table, words, count ? count - 1 : 0);
    c.word = count ? words[count - 1] : "";
    of_value = b.open;
    if (!of_value && !b.flags_ended && is_flag(c.word) && strchr(c.word, '=')) {
        of_value = find_flag(rules->table, c.word);
        of_value = of_value && of_value->arg ? of_value : NULL;
        keep_beginning(&c, strcspn(c.word, "=") + 1);
        if (!of_value)
            b.flags_ended = true;
    }
    if (of_value)
        offer_values(&c, rules, of_value);
    else if (!b.flags_ended && *c.word == '-')
        offer_flags(&c, rules->table);
    else if (rules->offer_word && !*c.stays)
        rules->offer_word(&c, b.word, b.count);
    free(b.word);
    free(c.stays);
}
