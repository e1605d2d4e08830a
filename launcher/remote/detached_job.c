/* SPDX-License-Identifier: MIT */
#include "launcher/remote/detached_job.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/base/xalloc.h"
#include "rendezvous/keys/key.h"
#include "rendezvous/keys/key_file.h"
#include "rendezvous/keys/key_search.h"
#include "rendezvous/tls/key_memory.h"

struct detached_job {
    char *run_id, *path, *endpoint;
};

/* ~/.config/crun/jobs/RUN_ID.key */
static char *find_key_path(const char *run_id)
{
    char home[PATH_MAX], *slash, *path;

    if (!key_search_home(home, sizeof(home)))
        return NULL;
    slash = strrchr(home, '/');
    if (slash)
        *slash = '\0';
    path = xasprintf("%s/jobs/%s.key", home, run_id);
    for (char *c = path + strlen(home) + strlen("/jobs/"); *c; c++)
        if (*c == '/')
            *c = '_';
    return path;
}

struct detached_job *detached_job_create(const char *run_id, const struct key *key,
                                         struct err *e)
{
    struct detached_job *d = xcalloc(1, sizeof(*d));
    struct key *own = key_memory_create(sizeof(*own), e);
    int rc = -1;

    d->run_id = xstrdup(run_id);
    d->path = find_key_path(run_id);
    if (!d->path)
        err_set(e, "--detach: there is no folder for its key: HOME is not set");
    else if (own && key_derive(key, ACCESS_OPERATE, 0, own, e) == 0)
        rc = key_file_create(d->path, own, e);
    key_memory_destroy(own, sizeof(*own));
    if (rc == 0)
        return d;
    detached_job_destroy(d);
    return NULL;
}

void detached_job_set_endpoints(struct detached_job *d, const char *endpoints)
{
    free(d->endpoint);
    d->endpoint = xasprintf("%.*s", (int)strcspn(endpoints, ","), endpoints);
}

void detached_job_print(const struct detached_job *d, FILE *out)
{
    static const char *const commands[] = { "status", "events", "stop" };

    fprintf(out, "job \"%s\" runs on\n", d->run_id);
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
        fprintf(out, "  crunctl --key-file %s -e %s %s%s%s\n", d->path,
                d->endpoint ? d->endpoint : "", commands[i], i ? " " : "",
                i ? d->run_id : "");
}

void detached_job_forget(struct detached_job *d)
{
    unlink(d->path);
}

void detached_job_destroy(struct detached_job *d)
{
    if (!d)
        return;
    free(d->run_id);
    free(d->path);
    free(d->endpoint);
    free(d);
}
