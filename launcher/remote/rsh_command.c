/* SPDX-License-Identifier: MIT */
#include "launcher/remote/rsh_command.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/xalloc.h"

struct word_list {
    char **word;
    unsigned count;
};

static void add_word(struct word_list *l, char *word)
{
    l->word = xrealloc(l->word, (l->count + 2) * sizeof(*l->word));
    l->word[l->count++] = word;
    l->word[l->count] = NULL;
}

/* The word with the host in the place of {}. */
static char *fill_in_host(const char *word, const char *host, bool *has_host)
{
    const char *mark = strstr(word, "{}");

    if (!mark)
        return xstrdup(word);
    *has_host = true;
    return xasprintf("%.*s%s%s", (int)(mark - word), word, host, mark + 2);
}

/* True: one of the words has the host. */
static bool add_words(struct word_list *l, const char *text, const char *host)
{
    char *copy = xstrdup(text ? text : ""), *rest = copy, *word;
    bool has_host = false;

    while ((word = strsep(&rest, " \t\n")))
        if (*word)
            add_word(l, fill_in_host(word, host, &has_host));
    free(copy);
    return has_host;
}

static bool is_program(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');

    return strcmp(slash ? slash + 1 : path, name) == 0;
}

bool rsh_is_this_machine(const char *host)
{
    char own[HOST_NAME_MAX_BYTES + 1] = "";

    (void)!gethostname(own, sizeof(own) - 1);
    if (strcmp(host, "localhost") == 0 || strcmp(host, own) == 0)
        return true;
    own[strcspn(own, ".")] = '\0';
    return *own && strcmp(host, own) == 0;
}

/* ssh takes the first value of an option: that of the user. A host that does not answer
 * is named after 10 s; the kernel repeats what gets lost meanwhile. */
static void add_ssh(struct word_list *l, const char *ssh_args, const char *host)
{
    bool has_host;

    add_words(l, "ssh -T -x", host);
    has_host = add_words(l, ssh_args, host);
    add_words(l,
              "-o BatchMode=yes -o ConnectTimeout=10 -o ConnectionAttempts=1 "
              "-o ServerAliveInterval=15",
              host);
    if (!has_host)
        add_word(l, xstrdup(host));
}

char **rsh_command(const char *program, const char *ssh_args, const char *host)
{
    struct word_list l = { .word = NULL };

    if (program && *program) {
        if (!add_words(&l, program, host)) {
            add_words(&l, ssh_args, host);
            add_word(&l, xstrdup(host));
            if (l.word &&
                (is_program(l.word[0], "kubectl") || is_program(l.word[0], "oc")))
                add_word(&l, xstrdup("--"));
        }
    } else if (!rsh_is_this_machine(host)) {
        add_ssh(&l, ssh_args, host);
    }
    add_word(&l, xstrdup("sh"));
    return l.word;
}

void rsh_free(char **argv)
{
    for (char **word = argv; *word; word++)
        free(*word);
    free(argv);
}
