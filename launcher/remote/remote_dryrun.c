/* SPDX-License-Identifier: MIT */
#include "launcher/remote/remote_internal.h"

#include <inttypes.h>
#include <string.h>

#include "launcher/remote/rsh_command.h"
#include "rendezvous/common/base/text.h"

int remote_print(const struct remote_job *job, FILE *out, struct err *e)
{
    struct push push;

    if (push_init(&push, e) < 0)
        return -1;
    fprintf(out, "# %zu host%s, folder %s, %s\n", job->count, text_plural(job->count),
            job->folder, push.self);
    for (size_t i = 0; i < job->count; i++) {
        const struct host *t = &job->hosts->host[i];
        char **argv = rsh_command(job->rsh, job->ssh_args, t->name);

        fprintf(out, "\n# node rank %zu, %s", i, t->name);
        if (t->slots)
            fprintf(out, ", %" PRIu32 " worker%s", t->slots, text_plural(t->slots));
        fputc('\n', out);
        for (char **word = argv; *word; word++)
            fprintf(out, "%s%s", word > argv ? " " : "", *word);
        fputc('\n', out);
        rsh_free(argv);
    }
    fputs("\n# variables that travel\n", out);
    for (char *const *v = job->environment; *v; v++)
        fprintf(out, "#   %.*s\n", (int)strcspn(*v, "="), *v);
    push_fini(&push);
    return 0;
}
