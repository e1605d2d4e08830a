/* SPDX-License-Identifier: MIT */
/* The keys of --rdzv-conf: a table of options with another syntax. */
#include "launcher/flags/rdzv_conf.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "launcher/flags/limits.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/opt.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/limits.h"
#include "rendezvous/wire/protocol/proto.h"

#define A_YEAR_MS (365ll * 24 * 3600 * 1000)
#define TIMEOUT_MS_MAX UINT32_MAX

static int parse_truth(const char *text, bool *truth)
{
    static const char *const yes[] = { "1", "true", "t", "yes", "y" };
    static const char *const no[] = { "0", "false", "f", "no", "n" };

    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        *truth = strcasecmp(text, yes[i]) == 0;
        if (*truth || strcasecmp(text, no[i]) == 0)
            return 0;
    }
    return -1;
}

static int set_is_host(void *target, const struct opt *opt, const char *value,
                       struct err *e)
{
    bool truth;

    if (parse_truth(value, &truth) < 0)
        return err_set(e, "\"%s\" is not true or false", value);
    ((struct rdzv_conf *)target)->is_host = truth;
    return 0;
}

static int check_truth(void *target, const struct opt *opt, const char *value,
                       struct err *e)
{
    bool truth;

    if (parse_truth(value, &truth) < 0)
        return err_set(e, "\"%s\" is not true or false", value);
    return 0;
}

static int set_last_call(void *target, const struct opt *opt, const char *value,
                         struct err *e)
{
    ((struct rdzv_conf *)target)->last_call_given = true;
    return opt_set_seconds(target, opt, value, e);
}

static int set_scale(void *target, const struct opt *opt, const char *value,
                     struct err *e)
{
    enum job_scale scale = proto_scale(value);

    if (scale == JOB_SCALE_UNKNOWN)
        return err_set(e, "\"%s\" is not now, checkpoint or never", value);
    ((struct rdzv_conf *)target)->scale = scale;
    return 0;
}

static int set_witness(void *target, const struct opt *opt, const char *value,
                       struct err *e)
{
    struct rdzv_conf *c = target;
    char host[HOST_NAME_MAX_BYTES + 1];
    uint16_t port;

    if (strncmp(value, "file:/", 6) == 0)
        value += strlen("file:");
    else if (net_split(value, -1, host, sizeof(host), &port, e) < 0 || !*host)
        return err_set(
            e, "\"%s\" is not file:DIRECTORY, from the root on, or HOST:PORT", value);
    if (strlen(value) > WITNESS_MAX_BYTES)
        return err_set(e, "it has at most %d bytes", WITNESS_MAX_BYTES);
    snprintf(c->witness, sizeof(c->witness), "%s", value);
    return 0;
}

static int set_alone(void *target, const struct opt *opt, const char *value,
                     struct err *e)
{
    struct rdzv_conf *c = target;

    c->alone = strcmp(value, "continue") == 0;
    return c->alone || strcmp(value, "end") == 0
               ? 0
               : err_set(e, "\"%s\" is not continue or end", value);
}

static int check_store_type(void *target, const struct opt *opt, const char *value,
                            struct err *e)
{
    if (strcasecmp(value, "tcp") != 0)
        return err_set(e, "\"%s\" is not tcp, the only one crun has", value);
    return 0;
}

#define SECONDS(key, field, least, most)                                               \
    {                                                                                  \
        .name = key, .set = opt_set_seconds, OPT_FIELD(struct rdzv_conf, field),       \
        .min = least, .max = most                                                      \
    }
#define UNUSED(key) SECONDS(key, unused_ms, 0, A_YEAR_MS)

const struct opt rdzv_conf_keys[] = {
    SECONDS("join_timeout", join_timeout_ms, 1, TIMEOUT_MS_MAX),
    { .name = "last_call_timeout",
      .set = set_last_call,
      .offset = offsetof(struct rdzv_conf, last_call_ms),
      .min = 0,
      .max = TIMEOUT_MS_MAX },
    SECONDS("timeout", timeout_ms, 1, TIMEOUT_MS_MAX),
    SECONDS("keep_alive_interval", keep_alive_interval_ms, 1, LEASE_MS_MAX),
    { .name = "keep_alive_max_attempt",
      .set = opt_set_int,
      .offset = offsetof(struct rdzv_conf, keep_alive_attempts),
      .min = 1,
      .max = LEASE_MS_MAX },
    { .name = "is_host", .set = set_is_host },
    SECONDS("lease", lease_ms, LEASE_MS_MIN, LEASE_MS_MAX),
    SECONDS("outage_grace", outage_grace_ms, 1, TIMEOUT_MS_MAX),
    { .name = "scale", .set = set_scale },
    { .name = "quarantine",
      .set = opt_set_int,
      OPT_FIELD(struct rdzv_conf, quarantine),
      .min = 0,
      .max = QUARANTINE_MAX },
    { .name = "replicas",
      .set = opt_set_int,
      OPT_FIELD(struct rdzv_conf, replicas),
      .min = 1,
      .max = 7 },
    { .name = "witness", .set = set_witness },
    { .name = "alone", .set = set_alone },
    UNUSED("close_timeout"),
    UNUSED("heartbeat_timeout"),
    UNUSED("read_timeout"),
    { .name = "use_libuv", .set = check_truth },
    { .name = "store_type", .set = check_store_type },
    { .name = NULL }
};

void rdzv_conf_init(struct rdzv_conf *c)
{
    *c = (struct rdzv_conf){ .is_host = -1, .quarantine = QUARANTINE_DEFAULT };
}

/* The keys of one text that are not known: "a, b (did you mean c?)". */
struct unknown_keys {
    char list[160];
    unsigned count;
    bool full;
};

static void add_unknown_key(struct unknown_keys *u, const char *key)
{
    const struct opt *nearest = opt_find_nearest(rdzv_conf_keys, key, strlen(key),
                                                 true);
    size_t used = strlen(u->list), room = sizeof(u->list) - used;
    int length;

    u->count++;
    if (u->full)
        return;
    length = snprintf(u->list + used, room, "%s%s%s%s%s", used ? ", " : "", key,
                      nearest ? " (did you mean " : "", nearest ? nearest->name : "",
                      nearest ? "?)" : "");
    u->full = length < 0 || (size_t)length >= room;
    if (u->full)
        u->list[used] = '\0';
}

static void note_unknown_keys(struct rdzv_conf *c, const struct unknown_keys *u)
{
    bool several = u->count > 1;

    if (u->count > 0)
        snprintf(c->note, sizeof(c->note),
                 "--rdzv-conf: %s%s %s of crun and %s no effect", u->list,
                 !u->full   ? ""
                 : *u->list ? ", ..."
                            : "...",
                 several ? "are not keys" : "is not a key", several ? "have" : "has");
}

static int set_key(struct rdzv_conf *c, const char *key, const char *value,
                   struct unknown_keys *unknown, struct err *e)
{
    for (const struct opt *o = rdzv_conf_keys; o->name; o++) {
        if (strcmp(o->name, key) != 0)
            continue;
        return o->set(c, o, value, e) < 0 ? err_wrap(e, "%s", key) : 0;
    }
    add_unknown_key(unknown, key);
    return 0;
}

static char *trim_blanks(char *text)
{
    char *end;

    while (isspace((unsigned char)*text))
        text++;
    end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return text;
}

/* Also without a pair of quotes, which a script's own quoting leaves in the value. */
static char *trim_quotes(char *text)
{
    size_t length;

    text = trim_blanks(text);
    length = strlen(text);
    if (length < 2 || (*text != '\'' && *text != '"') || text[length - 1] != *text)
        return text;
    text[length - 1] = '\0';
    return trim_blanks(text + 1);
}

static int set_pair(struct rdzv_conf *c, char *pair, struct unknown_keys *unknown,
                    struct err *e)
{
    char *value = strchr(pair, '=');

    if (!value || value == pair)
        return err_set(e, "\"%s\" is not KEY=VALUE", trim_blanks(pair));
    *value++ = '\0';
    value = trim_quotes(value);
    if (!*value)
        return err_set(e, "%s: a value is missing", trim_blanks(pair));
    return set_key(c, trim_blanks(pair), value, unknown, e);
}

int rdzv_conf_parse(struct rdzv_conf *c, const char *text, struct err *e)
{
    char *copy = xstrdup(text), *rest = trim_quotes(copy), *pair;
    struct unknown_keys unknown = { .count = 0 };
    int rc = 0;

    while (rc == 0 && *rest && (pair = strsep(&rest, ",")) != NULL) {
        rc = set_pair(c, pair, &unknown, e);
        if (!rest)
            break;
    }
    note_unknown_keys(c, &unknown);
    if (rc == 0 && *c->witness && c->alone)
        rc = err_set(e, "witness and alone=continue exclude each other");
    free(copy);
    return rc;
}
