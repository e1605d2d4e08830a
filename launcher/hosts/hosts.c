/* SPDX-License-Identifier: MIT */
#include "launcher/hosts/hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/hosts/host_parse.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

#define HOST_FILE_MAX (16u << 20)

bool hosts_are_wanted(const struct hosts_wanted *w)
{
    return w->lists.count || w->file;
}

void hosts_clear(struct hosts *h)
{
    for (size_t i = 0; i < h->count; i++)
        free(h->host[i].name);
    free(h->host);
    *h = (struct hosts){ .count = 0 };
}

/* All of fd as a text, to be freed; NULL: errno says why not. */
static char *read_text(int fd)
{
    size_t size = 4096, used = 0;
    char *text = xmalloc(size);
    ssize_t n;

    while ((n = read(fd, text + used, size - used - 1)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n > 0)
            used += (size_t)n;
        if (n < 0 || used > HOST_FILE_MAX) {
            errno = n < 0 ? errno : EFBIG;
            free(text);
            return NULL;
        }
        if (size - used < 2) {
            size *= 2;
            text = xrealloc(text, size);
        }
    }
    text[used] = '\0';
    if (strlen(text) == used)
        return text;
    errno = EILSEQ; /* a NUL would hide the lines after it */
    free(text);
    return NULL;
}

static int read_host_file(const char *path, const char *flag, struct hosts *h,
                          struct err *e)
{
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC), error, rc;
    char *text = fd < 0 ? NULL : read_text(fd), *from;

    error = errno;
    if (fd >= 0 && !is_stdin)
        close(fd);
    if (!text)
        return err_set_errno(e, error, "%s %s", flag, path);
    from = xasprintf("%s %s:", flag, path);
    rc = hosts_parse(text, from, h, e);
    if (rc == 0 && h->count == 0)
        rc = err_set(e, "%s %s has no hosts", flag, path);
    free(from);
    free(text);
    return rc;
}

/* What schedulers and operators write for other launchers. */
static int read_known_file(struct hosts *h, struct err *e)
{
    static const char *const variables[] = {
        "HYDRA_HOST_FILE",
        "I_MPI_HYDRA_HOST_FILE",
        "OMPI_MCA_orte_default_hostfile",
        "PBS_NODEFILE",
        "PRTE_MCA_prte_default_hostfile",
        "LSB_DJOB_HOSTFILE",
        "PE_HOSTFILE",
    };
    static const char *const paths[] = { "/job/hostfile", "/etc/mpi/hostfile" };

    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const char *path = getenv(variables[i]);

        if (path && *path)
            return read_host_file(path, variables[i], h, e);
    }
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (access(paths[i], F_OK) == 0)
            return read_host_file(paths[i], "--hostfile auto:", h, e);
    return err_set(e,
                   "--hostfile auto: there is no /job/hostfile, no /etc/mpi/hostfile, "
                   "and no variable that names a host file (HYDRA_HOST_FILE, "
                   "PBS_NODEFILE, ...)");
}

/* A value of -H: hosts, and among them ^FILE for those of a file, as in pdsh. */
static int read_list(const char *list, struct hosts *h, struct err *e)
{
    char *copy, *word;
    bool is_last;
    int rc = 0;

    if (!strchr(list, '^'))
        return hosts_parse(list, "--hosts", h, e);
    word = copy = xstrdup(list);
    do {
        char *end = host_item_end(word);

        is_last = *end == '\0';
        *end = '\0';
        rc = *word == '^' ? read_host_file(word + 1, "--hosts ^", h, e)
                          : hosts_parse(word, "--hosts", h, e);
        word = end + 1;
    } while (!is_last && rc == 0);
    free(copy);
    return rc;
}

static int compare_host_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The lists and files together name no host twice. */
static int check_host_names(const struct hosts *h, struct err *e)
{
    const char **name = xcalloc(h->count + 1, sizeof(*name)), *twice = NULL;

    for (size_t i = 0; i < h->count; i++)
        name[i] = h->host[i].name;
    qsort(name, h->count, sizeof(*name), compare_host_names);
    for (size_t i = 1; i < h->count && !twice; i++)
        if (strcmp(name[i - 1], name[i]) == 0)
            twice = name[i];
    free(name);
    if (twice)
        return err_set(e, "%s is in two lists of hosts", twice);
    if (h->count > NODES_MAX)
        return err_set(e, "more than %d hosts", NODES_MAX);
    return 0;
}

int hosts_read(const struct hosts_wanted *w, struct hosts *h, struct err *e)
{
    for (unsigned i = 0; i < w->lists.count; i++)
        if (read_list(w->lists.text[i], h, e) < 0)
            return -1;
    if (w->file && (strcmp(w->file, "auto") == 0
                        ? read_known_file(h, e)
                        : read_host_file(w->file, "--hostfile", h, e)) < 0)
        return -1;
    if (check_host_names(h, e) < 0)
        return -1;
    return h->count ? 0 : err_set(e, "no hosts are given");
}

/* total processes fill the slots of the hosts in order. */
static int fill_slots(struct hosts *h, uint32_t total, struct err *e)
{
    uint64_t slots = 0;
    uint32_t left = total;

    for (size_t i = 0; i < h->count; i++)
        slots += h->host[i].slots;
    if (slots < total)
        return err_set(e, "-np %u: %zu host%s with %llu slot%s", total, h->count,
                       text_plural(h->count), (unsigned long long)slots,
                       text_plural(slots));
    for (size_t i = 0; i < h->count; i++) {
        if (h->host[i].slots > left)
            h->host[i].slots = left;
        left -= h->host[i].slots;
    }
    return 0;
}

static int share_evenly(struct hosts *h, uint32_t total, struct err *e)
{
    uint32_t count = h->count;

    if ((total + count - 1) / count > WORKERS_PER_NODE_MAX)
        return err_set(e, "-np %u: more than %d processes on a host", total,
                       WORKERS_PER_NODE_MAX);
    for (uint32_t i = 0; i < count; i++)
        h->host[i].slots = total / count + (i < total % count);
    return 0;
}

int hosts_share_workers(struct hosts *h, uint32_t total, uint32_t per_node,
                        struct err *e)
{
    size_t with_slots = 0;
    int rc;

    if (total && per_node == HOSTS_PER_NODE_AUTO)
        return err_set(e, "-np %u needs a number of workers for each host", total);
    for (size_t i = 0; i < h->count; i++) {
        if (per_node)
            h->host[i].slots = total ? per_node : 0;
        with_slots += h->host[i].slots > 0;
    }
    if (total == 0)
        return 0;
    if (with_slots && with_slots < h->count)
        return err_set(e,
                       "-np %u: %zu of %zu hosts have no number of slots; give it to "
                       "all or none",
                       total, h->count - with_slots, h->count);
    rc = with_slots ? fill_slots(h, total, e) : share_evenly(h, total, e);
    if (rc == 0) {
        while (h->count && h->host[h->count - 1].slots == 0) {
            h->count--;
            free(h->host[h->count].name);
        }
    }
    return rc;
}
