/* SPDX-License-Identifier: MIT */
#include "launcher/remote/detached_job.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "agent/interface/job_record.h"
#include "launcher/remote/remote_internal.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

#define OUTPUTS_MAX 60 /* of a record, which is small */

/* NULL-ended "host:/path", to be freed with its texts. */
static char **list_outputs(const struct remote *r)
{
    char **list = xcalloc(r->count + 1, sizeof(*list));
    size_t used = 0;

    for (size_t i = 0; i < r->count; i++)
        if (r->host[i].log)
            list[used++] = xasprintf("%s:%s", r->host[i].target->name, r->host[i].log);
    return list;
}

static void write_record(const struct remote *r, char **outputs)
{
    struct job_reach reach = { .host = r->first->target->name,
                               .rsh = r->job->rsh,
                               .ssh_args = r->job->ssh_args,
                               .command = r->first->reach,
                               .outputs = (const char *const *)outputs };
    struct job_facts facts = { .instance = "" };
    struct run_folder folder;
    char *cut = NULL;
    size_t n = 0;

    remote_fill_facts((void *)(uintptr_t)r, &facts);
    facts.started_ms = clock_wall_ms() - (clock_ms() - r->begun_ms);
    facts.reach = &reach;
    while (outputs[n])
        n++;
    if (n > OUTPUTS_MAX) {
        cut = outputs[OUTPUTS_MAX];
        outputs[OUTPUTS_MAX] = NULL;
    }
    if (run_folder_open_detached(true, &folder) < 0 ||
        job_record_write_detached(&folder, &facts) < 0)
        log_warn("crunctl will not find this job: its record cannot be written: %s",
                 strerror(errno));
    run_folder_close(&folder);
    if (cut)
        outputs[OUTPUTS_MAX] = cut;
}

bool detached_job_leave(const struct remote *r)
{
    char **outputs = list_outputs(r), shown[PATH_MAX];
    bool goes_on = outputs[0] && r->first && r->first->reach;

    if (!goes_on && r->has_started)
        log_info("the job has ended already, with exit code %d", r->code);
    if (goes_on) {
        write_record(r, outputs);
        printf("job \"%s\" goes on without this process:\n"
               "  crunctl status %s\n  crunctl logs %s\n  crunctl stop %s\n",
               r->name, r->name, r->name, r->name);
        for (char **at = outputs; *at; at++)
            printf("  output  %s\n", text_printable(*at, shown, sizeof(shown)));
        fflush(stdout);
    }
    for (char **at = outputs; *at; at++)
        free(*at);
    free(outputs);
    return goes_on;
}
