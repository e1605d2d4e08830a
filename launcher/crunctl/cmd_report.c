/* SPDX-License-Identifier: MIT */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/crunctl/ctl_client.h"
#include "launcher/crunctl/ctl_jobs.h"
#include "launcher/crunctl/ctl_views.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/show/views/job_json.h"
#include "rendezvous/show/web/page.h"

/*
 * crunctl report: a job that runs or is over as one file of HTML, to keep or to send.
 */

/* "train.html", in the working directory. Returns buf. */
static char *report_file_name(const struct job_view *job, char *buf, size_t size)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789._@+-";

    snprintf(buf, size, "%.200s.html", job->name);
    for (char *c = buf; *c; c++)
        if (!strchr(allowed, *c))
            *c = '_';
    if (*buf == '.' || *buf == '-')
        *buf = '_';
    return buf;
}

/* All of it at once, so that a file is whole or was not touched. */
static int write_report_file(const char *path, const char *html, size_t size,
                             struct err *e)
{
    size_t left = size;
    int fd = fd_create_file(path, O_TRUNC, 0666), errnum;

    if (fd < 0) {
        err_set_errno(e, errno, "%s", path);
        return CTL_EXIT_REFUSED;
    }
    errnum = fd_write_all(fd, html, &left);
    if (close(fd) < 0 && !errnum)
        errnum = errno;
    if (errnum) {
        err_set_errno(e, errnum, "%s", path);
        return CTL_EXIT_REFUSED;
    }
    log_info("%s: %zu KiB", path, (size + 1023) / 1024);
    return CTL_EXIT_OK;
}

static int write_report(const struct ctl_options *o, const struct job_view *job,
                        struct err *e)
{
    cJSON *object = job_json_object(job);
    char name[256], *html = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&html, &size);
    int rc = CTL_EXIT_OK;

    if (out) {
        page_write_report(out, object, clock_wall_ms());
        fclose(out);
    }
    cJSON_Delete(object);
    if (!html) {
        err_set(e, "out of memory");
        rc = CTL_EXIT_REFUSED;
    } else if (o->output && strcmp(o->output, "-") == 0) {
        fwrite(html, 1, size, o->out);
    } else {
        rc = write_report_file(o->output ? o->output
                                         : report_file_name(job, name, sizeof(name)),
                               html, size, e);
    }
    free(html);
    return rc;
}

/* The only job of a rendezvous. */
static int ask_only_job(struct ctl_client *c, struct job_views *v, struct err *e)
{
    int rc = ctl_views_ask_all(c, NULL, false, v, e);

    if (rc != CTL_EXIT_OK || v->count == 1)
        return rc;
    err_set(e, v->count
                   ? "this rendezvous serves several jobs; name one (crunctl status)"
                   : "there is no job here");
    return CTL_EXIT_REFUSED;
}

static int report_run(struct ctl_client *c, const struct ctl_options *o,
                      const char *word, struct err *e)
{
    struct job_views v = { .count = 0 };
    struct err none;
    int rc = o->run_id ? ctl_views_ask_job(c, o->run_id, &v, e)
                       : ask_only_job(c, &v, e);

    if (rc == CTL_EXIT_OK && v.count > 0) {
        if (!v.job[0].history && ctl_views_ask_history(c, &v.job[0], &none) != 0)
            log_warn("the report has no curve and no epochs: %s", none.text);
        rc = write_report(o, &v.job[0], e);
    }
    job_views_clear(&v);
    return rc;
}

/* A crun that did not host its rendezvous knows little of the job: its crund may. */
static cJSON *ask_history_elsewhere(const struct ctl_options *o,
                                    const struct ctl_job *job)
{
    struct ctl_options own = *o;
    struct job_view view = { .nodes = 0 };
    struct ctl_client *c;
    struct err e;
    int rc;

    if (job->is_host || !*job->rendezvous)
        return NULL;
    own.endpoint = job->rendezvous;
    c = ctl_client_open(&own, ACCESS_VIEW, &rc, &e);
    snprintf(view.status.run_id, sizeof(view.status.run_id), "%s", job->run_id);
    if (c)
        (void)!ctl_views_ask_history(c, &view, &e);
    ctl_client_close(c);
    return view.history;
}

static int report_run_ended(const struct ctl_options *o, const struct ctl_job *job,
                            struct err *e)
{
    struct job_views v = { .count = 0 };
    int rc;

    ctl_views_add_ended(&v, job);
    v.job[0].history = ctl_job_read_history(job);
    if (!v.job[0].history)
        v.job[0].history = ask_history_elsewhere(o, job);
    if (!v.job[0].history)
        log_warn("the report has no curve and no epochs: they are known to the crun "
                 "that hosted the rendezvous, or to a crund");
    rc = write_report(o, &v.job[0], e);
    job_views_clear(&v);
    return rc;
}

static const struct opt report_table[] = {
    { .name = "output",
      .letter = 'o',
      .arg = "FILE",
      .help = "Where to write; - is standard output. Default: the job's name with "
              ".html, in the working directory.",
      .set = opt_set_text,
      OPT_FIELD(struct ctl_options, output) },
    CTL_COMMON_FLAGS,
    { .name = NULL },
};

const struct ctl_command ctl_report = {
    .name = "report",
    .takes_job = true,
    .summary = "write a job and its history to one HTML file",
    .table = report_table,
    .access = ACCESS_VIEW,
    .run = report_run,
    .run_ended = report_run_ended,
};
