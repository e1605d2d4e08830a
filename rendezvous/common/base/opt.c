/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/opt.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "rendezvous/common/base/xalloc.h"

/* Shorter words are letters of switches, not a name. */
#define NAME_LETTERS_MIN 4

#define HELP_WIDTH 80
#define HELP_INDENT_MAX 30 /* flags longer than this have their help below */
#define NAME_SIZE 64

/* One run of opt_parse. */
struct opt_parser {
    const struct opt *table;
    const struct opt_hint *hints; /* may be NULL */
    void *target;
    char **argv;
    int argc;
    int next;   /* the first word of argv that is still to be parsed */
    int *words; /* indices of the words that are not flags */
    int word_count;
};

static char canonical_letter(char c)
{
    return c == '_' ? '-' : c;
}

static bool name_has_prefix(const char *name, const char *typed, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (name[i] == '\0' || canonical_letter(name[i]) != canonical_letter(typed[i]))
            return false;
    return true;
}

/* How many letters must be added, dropped, changed or swapped (restricted Damerau). */
static size_t name_distance(const char *a, const char *b, size_t b_length)
{
    size_t row[3][NAME_SIZE + 1], a_length = strlen(a);
    size_t *before = row[0], *above = row[1], *now = row[2], *free_row;

    if (a_length > NAME_SIZE || b_length > NAME_SIZE)
        return SIZE_MAX;
    for (size_t j = 0; j <= b_length; j++)
        above[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        now[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            char x = canonical_letter(a[i - 1]), y = canonical_letter(b[j - 1]);
            size_t best = above[j - 1] + (x != y);

            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && x == canonical_letter(b[j - 2]) &&
                canonical_letter(a[i - 2]) == y && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        free_row = before;
        before = above;
        above = now;
        now = free_row;
    }
    return above[b_length];
}

const struct opt *opt_find_nearest(const struct opt *table, const char *typed,
                                   size_t length, bool hidden)
{
    const struct opt *nearest = NULL;
    size_t least = length / 3 + 2; /* anything less similar is no help */

    for (const struct opt *o = table; o->name; o++) {
        size_t d = o->help || hidden ? name_distance(o->name, typed, length) : SIZE_MAX;

        if (d < least) {
            least = d;
            nearest = o;
        }
    }
    return nearest;
}

/* Copies a flag's name, with underscores if what was typed has some. */
static void spell_like(const char *typed, size_t length, const char *flag,
                       char name[NAME_SIZE])
{
    snprintf(name, NAME_SIZE, "%s", flag);
    for (; memchr(typed, '_', length) && *name; name++)
        *name = *name == '-' ? '_' : *name;
}

/* The number that the flag just read was given: "--name=4", "--name 4"; or NULL. */
static const char *find_number(const struct opt_parser *p, const char *typed,
                               size_t length)
{
    const char *value = typed[length] == '=' ? typed + length + 1
                        : typed[length]      ? typed + length
                                             : p->argv[p->next];

    return value && *value && value[strspn(value, "0123456789")] == '\0' ? value : NULL;
}

/* `dashes` and `length` letters are a flag that only other programs have. */
static int refuse_with_hint(struct opt_parser *p, const struct opt_hint *hint,
                            const char *dashes, const char *typed, size_t length,
                            struct err *e)
{
    const char *number = find_number(p, typed, length);
    char name[NAME_SIZE];

    if (hint->removed)
        return err_set(e, "%s%.*s is gone: %s", dashes, (int)length, typed, hint->text);
    if (hint->text)
        return err_set(e, "unknown flag %s%.*s: %s", dashes, (int)length, typed,
                       hint->text);
    spell_like(typed, length, hint->flag, name);
    return err_set(e, "unknown flag %s%.*s; did you mean --%s%s%s?", dashes,
                   (int)length, typed, name, number ? "=" : "", number ? number : "");
}

static const struct opt_hint *find_hint(const struct opt_parser *p, const char *typed,
                                        size_t length)
{
    for (const struct opt_hint *h = p->hints; h && h->typed; h++)
        if (strlen(h->typed) == length && name_has_prefix(h->typed, typed, length))
            return h;
    return NULL;
}

static int refuse_name(struct opt_parser *p, const char *typed, size_t length,
                       struct err *e)
{
    const struct opt_hint *hint = length > 1 ? find_hint(p, typed, length) : NULL;
    const struct opt *nearest;
    char name[NAME_SIZE];

    if (hint)
        return refuse_with_hint(p, hint, "--", typed, length, e);
    nearest = opt_find_nearest(p->table, typed, length, false);
    if (!nearest)
        return err_set(e, "unknown flag --%.*s (see --help)", (int)length, typed);
    spell_like(typed, length, nearest->name, name);
    return err_set(e, "unknown flag --%.*s; did you mean --%s?", (int)length, typed,
                   name);
}

/* The row that `typed` names in full or by a prefix that no other row has. */
static const struct opt *find_long_opt(struct opt_parser *p, const char *typed,
                                       size_t length, struct err *e)
{
    const struct opt *found = NULL, *second = NULL;

    for (const struct opt *o = p->table; o->name; o++) {
        if (length == 0 || !name_has_prefix(o->name, typed, length))
            continue;
        if (o->name[length] == '\0')
            return o;
        if (!found)
            found = o;
        else if (!second)
            second = o;
    }
    if (second && !find_hint(p, typed, length)) {
        (void)err_set(e, "--%.*s could be --%s or --%s", (int)length, typed,
                      found->name, second->name);
        return NULL;
    }
    if (!found || second)
        (void)refuse_name(p, typed, length, e);
    return second ? NULL : found;
}

static const struct opt *find_letter_opt(const struct opt *table, char letter)
{
    for (const struct opt *o = table; o->name; o++)
        if (o->letter == letter)
            return o;
    return NULL;
}

/* `typed`: the flag as it is typed, "--np", "-np" or "-n". */
static int apply_opt(struct opt_parser *p, const struct opt *o, const char *typed,
                     const char *value, struct err *e)
{
    if (o->set(p->target, o, value, e) < 0)
        return err_wrap(e, "%s", typed);
    return 0;
}

/* The value of o is the next word. */
static int apply_next_word(struct opt_parser *p, const struct opt *o, const char *typed,
                           struct err *e)
{
    if (p->next == p->argc)
        return err_set(e, "%s needs a value: %s %s", typed, typed, o->arg);
    return apply_opt(p, o, typed, p->argv[p->next++], e);
}

static int parse_long_flag(struct opt_parser *p, const char *dashes, const char *typed,
                           struct err *e)
{
    size_t length = strcspn(typed, "=");
    const char *value = typed[length] == '=' ? typed + length + 1 : NULL;
    const struct opt *o = find_long_opt(p, typed, length, e);
    char flag[NAME_SIZE];

    if (!o)
        return -1;
    snprintf(flag, sizeof(flag), "%s%s", dashes, o->name);
    if (!o->arg && value)
        return err_set(e, "%s takes no value (it was given \"%s\")", flag, value);
    if (!o->arg || o->arg_optional || value)
        return apply_opt(p, o, flag, value, e);
    return apply_next_word(p, o, flag, e);
}

/* "-np=4": a name that may stand after one dash. */
static bool is_one_dash_name(const struct opt *table, const char *letters)
{
    size_t length = strcspn(letters, "=");

    for (const struct opt *o = table; o->name; o++)
        if (o->one_dash && strlen(o->name) == length &&
            name_has_prefix(o->name, letters, length))
            return true;
    return false;
}

/* "-nproc-per-node=2" is a name that lacks a dash. "-rdzv-id=x" could also be the
 * letter r with a value. */
static bool lacks_dash(const struct opt *table, const char *letters)
{
    size_t length = strcspn(letters, "=");

    for (const struct opt *o = table; o->name && length > 1; o++)
        if (name_has_prefix(o->name, letters, length) &&
            (length >= NAME_LETTERS_MIN || o->name[length] == '\0'))
            return true;
    return false;
}

/* It may be a misspelt name that lacks a dash. */
static int refuse_letter(struct opt_parser *p, const char *letters, struct err *e)
{
    size_t length = strcspn(letters, "=");
    const struct opt_hint *hint = find_hint(p, letters, 1);
    const struct opt *nearest = length >= NAME_LETTERS_MIN
                                    ? opt_find_nearest(p->table, letters, length, false)
                                    : NULL;

    if (hint && find_number(p, letters, 1))
        return refuse_with_hint(p, hint, "-", letters, 1, e);
    if (nearest)
        return err_set(e, "unknown flag -%.*s; did you mean --%s?", (int)length,
                       letters, nearest->name);
    return err_set(e, "unknown flag -%c (see --help)", *letters);
}

/* "-vq", "-pVALUE", "-p VALUE" */
static int parse_letters(struct opt_parser *p, const char *letters, struct err *e)
{
    char flag[] = "-?";

    if (is_one_dash_name(p->table, letters))
        return parse_long_flag(p, "-", letters, e);
    if (lacks_dash(p->table, letters))
        return err_set(e, "unknown flag -%.*s; did you mean --%s?",
                       (int)strcspn(letters, "="), letters, letters);
    for (; *letters; letters++) {
        const struct opt *o = find_letter_opt(p->table, *letters);

        if (!o)
            return refuse_letter(p, letters, e);
        flag[1] = *letters;
        if (o->arg && letters[1])
            return apply_opt(p, o, flag, letters + 1, e);
        if (o->arg)
            return apply_next_word(p, o, flag, e);
        if (apply_opt(p, o, flag, NULL, e) < 0)
            return -1;
    }
    return 0;
}

static int parse_flags(struct opt_parser *p, bool stop_at_word, struct err *e)
{
    bool flags_end = false;

    while (p->next < p->argc) {
        const char *word = p->argv[p->next];

        if (flags_end || word[0] != '-' || word[1] == '\0') {
            p->words[p->word_count++] = p->next++;
            flags_end |= stop_at_word;
            continue;
        }
        p->next++;
        if (strcmp(word, "--") == 0)
            flags_end = true;
        else if ((word[1] == '-' ? parse_long_flag(p, "--", word + 2, e)
                                 : parse_letters(p, word + 1, e)) < 0)
            return -1;
    }
    return 0;
}

/* Flags and their values first, then the words, each in their order. */
static int move_words_back(struct opt_parser *p)
{
    char **sorted = xcalloc((size_t)p->argc + 1, sizeof(*sorted));
    int flag = 0, word = p->argc - p->word_count, w = 0;

    for (int i = 0; i < p->argc; i++) {
        if (w < p->word_count && p->words[w] == i) {
            sorted[word++] = p->argv[i];
            w++;
        } else {
            sorted[flag++] = p->argv[i];
        }
    }
    memcpy(p->argv, sorted, (size_t)p->argc * sizeof(*sorted));
    free(sorted);
    return p->argc - p->word_count;
}

/* A switch in the environment needs a value, because a variable always has one. */
static int opt_parse_truth(const char *text, bool *truth, struct err *e)
{
    static const struct {
        const char *text;
        bool truth;
    } words[] = {
        { "1", true },  { "true", true },   { "yes", true }, { "on", true },
        { "0", false }, { "false", false }, { "no", false }, { "off", false }
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(text, words[i].text) == 0) {
            *truth = words[i].truth;
            return 0;
        }
    return err_set(e, "\"%s\" is not 1 or 0", text);
}

static int apply_variable(struct opt_parser *p, const struct opt *o, const char *value,
                          struct err *e)
{
    bool truth = false, is_truth = (!o->arg || o->arg_optional) &&
                                   opt_parse_truth(value, &truth, e) == 0;

    if (!is_truth) {
        if (!o->arg || o->set(p->target, o, value, e) < 0)
            return -1;
        if (o->adds)
            ((struct opt_texts *)((char *)p->target + o->offset))->from_variable = true;
        return 0;
    }
    return truth ? o->set(p->target, o, NULL, e) : 0;
}

/* Kubernetes describes a Service called "crun-master" by CRUN_MASTER_PORT=tcp://..., in
 * all pods of its namespace. */
static bool is_service_link(const char *flag, const char *value)
{
    size_t length = strlen(flag);

    return length >= 4 && strcmp(flag + length - 4, "port") == 0 &&
           (strncmp(value, "tcp://", 6) == 0 || strncmp(value, "udp://", 6) == 0 ||
            strncmp(value, "sctp://", 7) == 0);
}

/* The value of the strongest variable that is set for it, and its name; or NULL. */
static const char *find_variable(const char *flag, const char *const *prefixes,
                                 char *name, size_t size)
{
    const char *found = NULL;
    char candidate[2 * NAME_SIZE];

    /* No default for --help: a variable CRUN_VERSION means something else. */
    for (; prefixes && *prefixes &&
           !(strcmp(flag, "help") == 0 || strcmp(flag, "h") == 0 ||
             strcmp(flag, "version") == 0);
         prefixes++) {
        const char *value;

        snprintf(candidate, sizeof(candidate), "%s_%s", *prefixes, flag);
        for (char *c = candidate; *c; c++)
            *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
        value = getenv(candidate);
        /* a shell or a unit file unsets a variable by an empty value */
        if (value && *value && !is_service_link(flag, value)) {
            found = value;
            snprintf(name, size, "%s", candidate);
        }
    }
    return found;
}

static bool some_variable_is_set(const char *const *prefixes)
{
    for (; prefixes && *prefixes; prefixes++)
        for (char *const *v = environ; v && *v; v++)
            if (strncmp(*v, *prefixes, strlen(*prefixes)) == 0)
                return true;
    return false;
}

static int read_environment(struct opt_parser *p, const char *const *prefixes,
                            struct err *e)
{
    char name[2 * NAME_SIZE];

    if (!some_variable_is_set(prefixes)) /* they need not be tried for each flag */
        return 0;
    for (const struct opt *o = p->table; o->name; o++) {
        const char *value = find_variable(o->name, prefixes, name, sizeof(name));

        if (value && apply_variable(p, o, value, e) < 0)
            return err_wrap(e, "%s", name);
    }
    for (const struct opt_hint *h = p->hints; h && h->typed; h++)
        if (h->removed && find_variable(h->typed, prefixes, name, sizeof(name)))
            return err_set(e, "%s is gone: %s", name, h->text);
    return 0;
}

int opt_parse(const struct opt_rules *rules, int argc, char **argv, void *target,
              int *first_word, struct err *e)
{
    struct opt_parser p = { .table = rules->table,
                            .hints = rules->hints,
                            .target = target,
                            .argv = argv,
                            .argc = argc,
                            .next = 1 };
    int rc;

    p.words = xcalloc((size_t)argc + 1, sizeof(*p.words));
    rc = read_environment(&p, rules->env_prefixes, e);
    if (rc == 0)
        rc = parse_flags(&p, rules->stop_at_word, e);
    if (rc == 0)
        *first_word = move_words_back(&p);
    else
        opt_spell_as_typed(p.next, argv, e->text);
    free(p.words);
    return rc;
}

/* Whether a word of argv is this flag, or the beginning of it, with an underscore. */
static bool is_typed_with_underscore(int argc, char *const *argv, const char *flag,
                                     size_t length)
{
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        size_t typed = strcspn(word, "=");

        if (typed > 2 && typed <= length && word[0] == '-' && word[1] == '-' &&
            memchr(word, '_', typed) && name_has_prefix(flag, word, typed))
            return true;
    }
    return false;
}

void opt_spell_as_typed(int argc, char *const *argv, char *text)
{
    char *flag = text, *end;

    while ((flag = strstr(flag, "--"))) {
        size_t length = 2 + strspn(flag + 2, "abcdefghijklmnopqrstuvwxyz-");

        end = flag + length;
        if (is_typed_with_underscore(argc, argv, flag, length))
            for (char *c = flag + 2; c < end; c++)
                *c = *c == '-' ? '_' : *c;
        flag = end;
    }
}

/* "  -v, --verbose" or "      --lease SECONDS"; returns its length */
static int format_flag(const struct opt *o, char *text, size_t size)
{
    char letter[8] = "    ";

    if (o->letter)
        snprintf(letter, sizeof(letter), "-%c, ", o->letter);
    if (o->one_dash)
        return snprintf(text, size, "  %s-%s %s", letter, o->name, o->arg);
    if (!o->arg)
        return snprintf(text, size, "  %s--%s", letter, o->name);
    return snprintf(text, size, o->arg_optional ? "  %s--%s[=%s]" : "  %s--%s %s",
                    letter, o->name, o->arg);
}

static void print_wrapped_text(const char *text, int indent, FILE *out)
{
    int column = indent;

    while (*text) {
        int length = (int)strcspn(text, " ");

        if (column > indent && column + 1 + length > HELP_WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        }
        column += fprintf(out, "%s%.*s", column > indent ? " " : "", length, text);
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

void opt_print(const struct opt *table, FILE *out)
{
    char text[2 * NAME_SIZE];
    int indent = 0;

    for (const struct opt *o = table; o->name; o++) {
        int length = o->help ? format_flag(o, text, sizeof(text)) + 2 : 0;

        if (length > indent && length <= HELP_INDENT_MAX)
            indent = length;
    }
    for (const struct opt *o = table; o->name; o++) {
        if (!o->help)
            continue;
        if (format_flag(o, text, sizeof(text)) + 2 <= indent)
            fprintf(out, "%-*s", indent, text);
        else
            fprintf(out, "%s\n%*s", text, indent, "");
        print_wrapped_text(o->help, indent, out);
    }
}
