/* SPDX-License-Identifier: MIT */
#include "worker-lib/checkpoint/checkpoint_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/bytes.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/id128.h"

#define CLAIM "generation-"
#define NEW ".new"
#define PARTS_END ".safetensors"
#define RANDOM_DIGITS 8
#define PARTS_MAX 1000000
/* a network's file system may show a new file late */
#define SEEN_TRIES 30
#define SEEN_MS 100

char *checkpoint_name(const struct checkpoint_set *set, unsigned part, char *buf)
{
    char save[24] = "";

    if (set->save)
        snprintf(save, sizeof(save), ".%06" PRIu64, set->save);
    snprintf(buf, CHECKPOINT_NAME_MAX,
             "checkpoint-g%" PRIu64 "%s-s%06" PRIu64 "-%uof%u.safetensors",
             set->generation, save, set->step, part, set->parts);
    return buf;
}

bool checkpoint_parse(const char *name, struct checkpoint_set *set, unsigned *part)
{
    char again[CHECKPOINT_NAME_MAX];
    int at = 0;

    *set = (struct checkpoint_set){ 0 };
    if (sscanf(name, "checkpoint-g%" SCNu64 "%n.%" SCNu64 "%n", &set->generation, &at,
               &set->save, &at) < 1 ||
        sscanf(name + at, "-s%" SCNu64 "-%uof%u", &set->step, part, &set->parts) != 3 ||
        *part < 1 || *part > set->parts || set->parts > PARTS_MAX)
        return false;
    return strcmp(checkpoint_name(set, *part, again), name) == 0;
}

static bool parse_claim(const char *name, uint64_t *generation)
{
    char again[CHECKPOINT_NAME_MAX];

    if (sscanf(name, CLAIM "%" SCNu64, generation) != 1)
        return false;
    snprintf(again, sizeof(again), CLAIM "%" PRIu64, *generation);
    return strcmp(again, name) == 0;
}

char *checkpoint_new_name(const char *name, char *buf)
{
    struct id128 random = id128_random();

    snprintf(buf, CHECKPOINT_NAME_MAX, "%s.%08" PRIx32 NEW, name,
             bytes_load32(random.byte));
    return buf;
}

/* "....safetensors.12345678.new", and without the digits, of earlier versions. */
static bool parse_new(const char *name, struct checkpoint_set *set)
{
    const char *end = strstr(name, PARTS_END);
    char stem[CHECKPOINT_NAME_MAX];
    size_t digits, length;
    unsigned part;

    if (!end)
        return false;
    end += sizeof(PARTS_END) - 1;
    length = (size_t)(end - name);
    digits = *end == '.' ? strspn(end + 1, "0123456789abcdef") : 0;
    if (strcmp(digits == RANDOM_DIGITS ? end + 1 + digits : end, NEW) != 0 ||
        length >= sizeof(stem))
        return false;
    memcpy(stem, name, length);
    stem[length] = '\0';
    return checkpoint_parse(stem, set, &part);
}

/* The newest generation that appears in a file name.
 * -1: the directory cannot be read. */
static int newest_generation(const char *dir, uint64_t *newest, struct err *e)
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    struct checkpoint_set set;
    uint64_t generation;
    unsigned part;

    if (!d)
        return err_set_errno(e, errno, "cannot read the checkpoint directory %s", dir);
    *newest = 0;
    while ((entry = readdir(d))) {
        if (checkpoint_parse(entry->d_name, &set, &part))
            generation = set.generation;
        else if (!parse_claim(entry->d_name, &generation))
            continue;
        if (generation > *newest)
            *newest = generation;
    }
    closedir(d);
    return 0;
}

static int make_directory_path(const char *dir)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s", dir) >= (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0777) < 0 && errno != EEXIST)
            return -1;
        *slash = '/';
    }
    return mkdir(path, 0777) < 0 && errno != EEXIST ? -1 : 0;
}

static void remove_older_claims(int fd, uint64_t generation)
{
    DIR *d = fdopendir(fd);
    struct dirent *entry;
    uint64_t claimed;

    while (d && (entry = readdir(d)))
        if (parse_claim(entry->d_name, &claimed) && claimed < generation)
            unlinkat(fd, entry->d_name, 0);
    if (d)
        closedir(d);
    else
        close(fd);
}

/* Creates the file of the next generation. -1: errno has the reason. */
static int create_claim(int fd, const char *dir, struct checkpoint_claim *claim)
{
    char name[CHECKPOINT_NAME_MAX];
    int file;

    do {
        struct err e;

        if (newest_generation(dir, &claim->generation, &e) < 0)
            return -1;
        snprintf(name, sizeof(name), CLAIM "%" PRIu64, ++claim->generation);
        file = openat(fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (file < 0 && errno == EEXIST);
    return file;
}

crun_status checkpoint_dir_claim(const char *dir, struct checkpoint_claim *claim,
                                 struct err *e)
{
    size_t size = ID128_HEX_SIZE - 1;
    struct id128 id = id128_random();
    int fd, file, errnum;

    id128_format(&id, claim->id);
    if (make_directory_path(dir) < 0) {
        err_set_errno(e, errno, "cannot create the checkpoint directory %s", dir);
        return CRUN_SYSTEM;
    }
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    file = fd < 0 ? -1 : create_claim(fd, dir, claim);
    errnum = file < 0 ? errno : fd_write_all(file, claim->id, &size);
    if (!errnum && (fsync(file) < 0 || fsync(fd) < 0))
        errnum = errno;
    if (file >= 0)
        close(file);
    if (!errnum) {
        remove_older_claims(fd, claim->generation);
        return CRUN_OK;
    }
    err_set_errno(e, errnum, "cannot write to the checkpoint directory %s", dir);
    if (fd >= 0)
        close(fd);
    return errnum == ENOSPC || errnum == EDQUOT ? CRUN_NO_SPACE : CRUN_SYSTEM;
}

/* "": there is none, or it is not written yet. */
static void read_claim(const char *dir, uint64_t generation, char id[ID128_HEX_SIZE])
{
    char path[PATH_MAX];
    FILE *f;

    snprintf(path, sizeof(path), "%.*s/" CLAIM "%" PRIu64, PATH_MAX - 64, dir,
             generation);
    f = fopen(path, "re");
    if (!f || !fgets(id, ID128_HEX_SIZE, f) || strlen(id) != ID128_HEX_SIZE - 1)
        *id = '\0';
    if (f)
        fclose(f);
}

bool checkpoint_dir_is_claimed(const char *dir, const struct checkpoint_claim *claim)
{
    char id[ID128_HEX_SIZE];

    for (unsigned i = 0; i < SEEN_TRIES; i++) {
        read_claim(dir, claim->generation, id);
        if (strcmp(id, claim->id) == 0)
            return true;
        usleep(SEEN_MS * 1000);
    }
    return false;
}

bool checkpoint_dir_is_stale(const char *dir, const struct checkpoint_claim *claim,
                             struct err *e)
{
    char id[ID128_HEX_SIZE];
    uint64_t newest;
    bool is_newer;

    if (newest_generation(dir, &newest, e) < 0)
        return false; /* the write fails, too */
    is_newer = newest > claim->generation;
    if (!is_newer) {
        /* in a directory that was removed, the next start has the same number */
        read_claim(dir, claim->generation, id);
        if (!*id || strcmp(id, claim->id) == 0)
            return false;
    }
    err_set(e,
            "another job, or a later start of this one, now writes its checkpoints to "
            "%s%s: end it, or give this job a directory of its own",
            dir, is_newer ? "" : ", which was replaced");
    return true;
}

/* -- reading and pruning ----------------------------------------------------------- */

static int compare_newest_first(const void *a, const void *b)
{
    const struct checkpoint_set *x = a, *y = b;

    if (x->generation != y->generation)
        return x->generation < y->generation ? 1 : -1;
    if (x->save != y->save)
        return x->save < y->save ? 1 : -1;
    if (x->step != y->step)
        return x->step < y->step ? 1 : -1;
    return (x->parts < y->parts) - (x->parts > y->parts);
}

crun_status checkpoint_dir_list(const char *dir, struct checkpoint_set **sets,
                                size_t *count, struct err *e)
{
    DIR *d = opendir(dir);
    struct checkpoint_set *all = NULL, set;
    size_t n = 0, room = 0, kept = 0;
    struct dirent *entry;
    unsigned part;

    while (d && (entry = readdir(d))) {
        if (!checkpoint_parse(entry->d_name, &set, &part))
            continue;
        if (n == room) {
            struct checkpoint_set *more = realloc(all, (room = room * 2 + 16) *
                                                           sizeof(*all));

            if (!more)
                break;
            all = more;
        }
        all[n++] = set;
    }
    if (d)
        closedir(d);
    if (n)
        qsort(all, n, sizeof(*all), compare_newest_first);
    for (size_t i = 0; i < n; i++) {
        if (!kept || compare_newest_first(&all[kept - 1], &all[i]) != 0)
            all[kept++] = all[i];
        all[kept - 1].present++;
    }
    *sets = all;
    *count = kept;
    if (d)
        return CRUN_OK;
    err_set_errno(e, errno, "cannot read the checkpoint directory %s", dir);
    return CRUN_SYSTEM;
}

bool checkpoint_set_is_complete(const struct checkpoint_set *set)
{
    return set->present == set->parts;
}

static void remove_set(int fd, const struct checkpoint_set *set)
{
    char name[CHECKPOINT_NAME_MAX];

    for (unsigned part = 1; part <= set->parts; part++)
        unlinkat(fd, checkpoint_name(set, part, name), 0);
}

static void remove_unfinished(DIR *d, uint64_t generation)
{
    struct dirent *entry;
    struct checkpoint_set set;

    while ((entry = readdir(d)))
        if (parse_new(entry->d_name, &set) && set.generation < generation)
            unlinkat(dirfd(d), entry->d_name, 0);
}

void checkpoint_dir_prune(const char *dir, uint64_t generation, unsigned keep)
{
    struct checkpoint_set *sets;
    DIR *d = opendir(dir);
    unsigned whole = 0;
    size_t count;
    struct err e;

    if (!d)
        return;
    (void)!checkpoint_dir_list(dir, &sets, &count, &e);
    for (size_t i = 0; i < count; i++) {
        if (whole == keep)
            remove_set(dirfd(d), &sets[i]);
        else
            whole += checkpoint_set_is_complete(&sets[i]);
    }
    remove_unfinished(d, generation);
    closedir(d);
    free(sets);
}
