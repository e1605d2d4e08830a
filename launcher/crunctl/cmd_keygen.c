/* SPDX-License-Identifier: MIT */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/crunctl/ctl_client.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/security/key_file.h"
#include "rendezvous/common/security/key_memory.h"
#include "rendezvous/common/security/key_search.h"
#include "rendezvous/common/security/limits.h"

/*
 * crunctl keygen: make a key, or one of less access from the agents' key. It speaks to
 * no rendezvous.
 */

#define SECONDS_PER_DAY 86400
#define DAYS_MAX 36500

/* "90d", "12h": a duration in seconds */
static int set_key_duration(void *target, const struct opt *opt, const char *value,
                            struct err *e)
{
    static const struct {
        char letter;
        int64_t seconds;
    } units[] = { { 'm', 60 },
                  { 'h', 3600 },
                  { 'd', SECONDS_PER_DAY },
                  { 'w', 7 * SECONDS_PER_DAY } };
    size_t digits = strspn(value, "0123456789");
    struct ctl_options *o = target;

    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        int64_t n = digits > 0 && digits < 10 ? atoll(value) : 0;

        if (value[digits] != units[i].letter || value[digits + 1] || n == 0)
            continue;
        o->key_seconds = n * units[i].seconds;
        if (o->key_seconds <= (int64_t)DAYS_MAX * SECONDS_PER_DAY)
            return 0;
    }
    return err_set(e, "\"%s\" is not a duration such as 90d, 12h, 30m or 4w", value);
}

static int set_key_role(void *target, const struct opt *opt, const char *value,
                        struct err *e)
{
    struct ctl_options *o = target;

    if (!access_parse(value, &o->key_access) || o->key_access == ACCESS_NONE)
        return err_set(e, "\"%s\" is not view, operate or agent", value);
    return 0;
}

/* The first agent's key that has not ended, of keys[count]. */
static int choose_parent(const char *path, const struct key *keys, int count,
                         struct key *parent, struct err *e)
{
    int64_t now = (int64_t)(clock_wall_ms() / 1000);

    for (int i = 0; i < count; i++)
        if (keys[i].access == ACCESS_AGENT && !key_has_ended(keys[i].expires, now)) {
            *parent = keys[i];
            return 0;
        }
    return err_set(e, "%s has no agent's key that has not ended", path);
}

/* The agents' key of this user, from which one of less access is made. */
static int read_parent(const struct ctl_options *o, struct key *parent, struct err *e)
{
    const size_t size = KEYS_PER_FILE_MAX * sizeof(struct key);
    char path[PATH_MAX];
    struct stat seen;
    struct key *keys;
    int count, rc = key_search(o->key_file, path, sizeof(path), e);

    if (rc < 0)
        return -1;
    if (rc == 0)
        return err_set(e, "there is no agent's key to make it from: make that first, "
                          "with crunctl keygen");
    keys = key_memory_create(size, e);
    if (!keys)
        return -1;
    count = key_file_read(path, keys, KEYS_PER_FILE_MAX, &seen, e);
    rc = count < 0 ? -1 : choose_parent(path, keys, count, parent, e);
    key_memory_destroy(keys, size);
    return rc;
}

static int make_key(const struct ctl_options *o, struct key *out, struct err *e)
{
    int64_t expires = 0;
    struct key parent;
    int rc;

    if (o->key_seconds)
        expires = (int64_t)(clock_wall_ms() / 1000) + o->key_seconds;
    if (o->key_access == ACCESS_AGENT) {
        key_generate(expires, out);
        return 0;
    }
    if (read_parent(o, &parent, e) < 0)
        return -1;
    if (!expires)
        expires = parent.expires;
    rc = key_derive(&parent, o->key_access, expires, out, e);
    key_wipe(&parent);
    return rc;
}

static int print_key(const struct key *k, struct err *e)
{
    char text[KEY_TEXT_SIZE];
    struct stat st;
    size_t left;
    int errnum;

    if (fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode) &&
        (st.st_mode & (S_IROTH | S_IWOTH | S_IWGRP)))
        return err_set(e,
                       "standard output is a file that other users can read or write "
                       "(mode %04o): umask 077 first, or name the file",
                       (unsigned)st.st_mode & 07777);
    left = strlen(key_format(k, text));
    errnum = fd_write_all(STDOUT_FILENO, text, &left);
    explicit_bzero(text, sizeof(text));
    return errnum ? err_set_errno(e, errnum, "standard output") : 0;
}

static void announce_key(const struct key *k, const char *path)
{
    char end[KEY_DATE_SIZE];

    log_info("made key %s (%s, ends: %s)%s%s", k->id, access_names[k->access],
             key_format_date(k->expires, end), path ? " in " : "", path ? path : "");
    if (path && k->access == ACCESS_AGENT)
        log_info("a node without this file stays outside: copy it to the others, "
                 "unless they share this folder");
}

static int cmd_keygen_run(struct ctl_client *c, const struct ctl_options *o,
                          const char *word, struct err *e)
{
    char home[PATH_MAX];
    const char *path = word;
    struct key k;
    int rc;

    if (o->words[0] && o->words[1])
        return err_set(e, "\"%s\": crunctl keygen makes one file", o->words[1]),
               CTL_EXIT_USAGE;
    if (!*word && o->key_access != ACCESS_AGENT)
        return err_set(e, "say where: crunctl keygen --role %s FILE, or - to print it",
                       access_names[o->key_access]),
               CTL_EXIT_USAGE;
    if (!*word && o->key_file)
        path = o->key_file;
    else if (!*word && !key_search_home(home, sizeof(home)))
        return err_set(e, "neither HOME nor XDG_CONFIG_HOME is set: name a file"),
               CTL_EXIT_USAGE;
    else if (!*word)
        path = home;
    if (make_key(o, &k, e) < 0)
        return CTL_EXIT_REFUSED;
    rc = strcmp(path, "-") == 0 ? print_key(&k, e) : key_file_create(path, &k, e);
    if (rc == 0)
        announce_key(&k, strcmp(path, "-") == 0 ? NULL : path);
    key_wipe(&k);
    return rc == 0 ? CTL_EXIT_OK : CTL_EXIT_REFUSED;
}

static const struct opt table[] = {
    { .name = "role",
      .arg = "view|operate|agent",
      .help = "What its holder may do: see jobs; also stop and drain them and see "
              "their stacks; or be a node, which is the default. The first two are "
              "made from the agents' "
              "key, which --key-file names.",
      .set = set_key_role },
    { .name = "expires",
      .arg = "DURATION",
      .help = "The key ends after so long: 90d, 12h, 30m, 4w. Default: never.",
      .set = set_key_duration },
    CTL_COMMON_FLAGS,
    { .name = NULL },
};

const struct ctl_command ctl_keygen = {
    .name = "keygen",
    .words = "[FILE|-]",
    .summary = "make a key that keeps strangers out of jobs",
    .table = table,
    .is_local = true,
    .run = cmd_keygen_run,
};
