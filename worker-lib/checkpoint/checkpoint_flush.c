/* SPDX-License-Identifier: MIT */
#include "worker-lib/checkpoint/checkpoint_flush.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/memory_part.h"
#include "rendezvous/common/base/memory_slot.h"
#include "worker-lib/checkpoint/checkpoint_file.h"

/* How long another node has to write its own parts; then their copies are written. */
#define OTHERS_MS 3000
#define LOOK_MS 50

struct flush {
    const char *dir;
    struct checkpoint_claim claim; /* of the newest start that this node knows */
    struct memory_set set;
    uint64_t began_ms;
    struct checkpoint_set named; /* as which it is written */
    bool has_first, wrote;       /* part 1, any part was written here */
};

/* A rank's part, or the shared section. */
struct flush_section {
    struct crun_memory_part memory;
    struct tensors *tensors; /* NULL: it is not there */
};

static void section_close(struct flush_section *s)
{
    tensors_close(s->tensors);
    crun_memory_part_free(&s->memory);
}

/* `word`: RANK:PATH[:shared]. An own section may be empty, a shared one not be there.
 */
static int section_open(const struct flush *f, const char *word, bool shared,
                        uint32_t *rank, struct flush_section *s, struct err *e)
{
    struct memory_header h;
    char path[64], mark[8] = "";
    int fd, rc;

    *s = (struct flush_section){ .tensors = NULL };
    if (sscanf(word, "%" SCNu32 ":%63[^: ]:%7[a-z]", rank, path, mark) < 2)
        return err_set(e, "no part of a checkpoint is named so: %s", word);
    if (shared && strcmp(mark, "shared") != 0)
        return 0;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(e, errno, "%s", path);
    rc = crun_memory_part_read(fd, shared, &s->memory, &h, e);
    close(fd);
    if (rc < 0)
        return -1;
    if (!memory_set_equal(&h.set, &f->set) || (!shared && h.rank != *rank) ||
        strcmp(h.kind, CHECKPOINT_KIND) != 0)
        rc = err_set(e, "a part in memory is of another checkpoint");
    else if (s->memory.bytes && tensors_open_bytes(&s->tensors, s->memory.data,
                                                   s->memory.bytes, e) != CRUN_OK)
        rc = -1;
    if (rc < 0)
        section_close(s);
    return rc;
}

/* The section of what all ranks share: of an own rank, or of a copy. */
static int find_shared(const struct flush *f, struct flush_section *s, struct err *e)
{
    static const char *const lists[] = { "CRUN_MEMORY_PARTS", "CRUN_MEMORY_COPIES" };
    uint32_t rank;

    for (unsigned i = 0; i < 2; i++)
        for (const char *word = getenv(lists[i]); word && *word;
             word += strcspn(word, " "), word += strspn(word, " ")) {
            if (section_open(f, word, true, &rank, s, e) < 0)
                return -1;
            if (s->tensors)
                return 0;
        }
    return err_set(e, "what all ranks share is not here");
}

/* The names of a part are in its words. */
static int read_names(const struct flush *f, const struct tensors *t, uint32_t rank,
                      struct checkpoint_set *set, struct err *e)
{
    const char *generation = tensors_word(t, "generation");
    const char *save = tensors_word(t, "save"), *part = tensors_word(t, "part");
    unsigned number = 0;

    *set = (struct checkpoint_set){ .step = f->set.step };
    if (!generation || !save || !part ||
        sscanf(generation, "%" SCNu64, &set->generation) != 1 ||
        sscanf(save, "%*s %" SCNu64, &set->save) != 1 ||
        sscanf(part, "%uof%u", &number, &set->parts) != 2 || number != rank + 1 ||
        number > set->parts || (set->parts != 1 && set->parts != f->set.world) ||
        set->generation > f->claim.generation)
        return err_set(e, "the part in memory of rank %" PRIu32 " has a wrong name",
                       rank);
    return 0;
}

/* Whether a complete checkpoint in the folder is newer, or of the same step. */
static bool files_have_it(const struct flush *f)
{
    const struct checkpoint_set *set = &f->named;
    struct checkpoint_set *all;
    size_t count, i = 0;
    bool has = false;
    struct err e;

    (void)!checkpoint_dir_list(f->dir, &all, &count, &e);
    while (i < count && !checkpoint_set_is_complete(&all[i]))
        i++;
    if (i < count)
        has = all[i].generation > set->generation ||
              (all[i].generation == set->generation &&
               (all[i].save > set->save || all[i].step == set->step ||
                (all[i].save == set->save && all[i].step > set->step)));
    free(all);
    return has;
}

static bool is_there(const struct flush *f, unsigned part)
{
    char name[CHECKPOINT_NAME_MAX], path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", f->dir,
             checkpoint_name(&f->named, part, name));
    return access(path, F_OK) == 0;
}

static bool is_complete(const struct flush *f)
{
    unsigned part = f->named.parts;

    while (part > 0 && is_there(f, part))
        part--;
    return part == 0;
}

static int write_file(const struct flush *f, uint32_t rank, const struct tensors *own,
                      const struct tensors *shared, struct err *e)
{
    const struct checkpoint_target to = {
        .dir = f->dir, .claim = &f->claim, .set = f->named, .part = rank + 1
    };
    unsigned items = 0, words;
    struct tensors_item *item = calloc(
        (shared ? tensors_count(shared) : 0) + tensors_count(own) + 1, sizeof(*item));
    struct tensors_word *word = tensors_words(own, &words);
    crun_status status = CRUN_NO_MEMORY;

    for (unsigned i = 0; item && shared && i < tensors_count(shared); i++)
        item[items++] = *tensors_item(shared, i);
    for (unsigned i = 0; item && i < tensors_count(own); i++)
        item[items++] = *tensors_item(own, i);
    if (item && word)
        status = checkpoint_target_write(&to, word, words, item, items, e);
    else
        err_set(e, "no memory to write a checkpoint");
    free(item);
    free(word);
    return status == CRUN_OK ? 0 : -1;
}

/* Two nodes that write the same part write the same bytes. */
static int write_own(struct flush *f, uint32_t rank, const struct tensors *own,
                     bool is_copy, struct err *e)
{
    struct flush_section shared = { .tensors = NULL };
    int rc;

    if (read_names(f, own, rank, &f->named, e) < 0)
        return -1;
    while (is_copy && !is_there(f, rank + 1) && clock_ms() < f->began_ms + OTHERS_MS)
        usleep(LOOK_MS * 1000);
    if (is_there(f, rank + 1)) /* not of this flush: the others wait for own parts */
        return !is_copy && is_complete(f) ? MEMORY_EXIT_IN_FILES : 0;
    if (files_have_it(f)) /* maybe as another node wrote it this moment */
        return is_there(f, rank + 1) ? 0 : MEMORY_EXIT_IN_FILES;
    if (rank == 0 && find_shared(f, &shared, e) < 0)
        return -1;
    rc = write_file(f, rank, own, shared.tensors, e);
    section_close(&shared);
    f->wrote |= rc == 0;
    f->has_first |= rc == 0 && rank == 0;
    return rc;
}

static int write_parts(struct flush *f, const char *list, bool are_copies,
                       struct err *e)
{
    int rc = 0;

    for (const char *word = getenv(list); rc == 0 && word && *word;
         word += strcspn(word, " "), word += strspn(word, " ")) {
        struct flush_section own;
        uint32_t rank;

        rc = section_open(f, word, false, &rank, &own, e);
        if (rc == 0 && own.tensors)
            rc = write_own(f, rank, own.tensors, are_copies, e);
        if (rc >= 0)
            section_close(&own);
    }
    return rc;
}

static uint64_t number_of(const char *variable)
{
    const char *value = getenv(variable);

    return value ? strtoull(value, NULL, 10) : 0;
}

int checkpoint_flush(char *const *words)
{
    struct flush f = { .dir = words[0],
                       .set = { .epoch = number_of("CRUN_MEMORY_EPOCH"),
                                .step = number_of("CRUN_MEMORY_STEP"),
                                .world = (uint32_t)number_of("CRUN_MEMORY_WORLD") },
                       .began_ms = clock_ms() };
    const char *flush = getenv("CRUN_MEMORY_FLUSH"); /* "0": at the end of the job */
    struct err e = { .text = "" };
    int rc;

    if (!words[0] || !words[1] || !words[2])
        return EXIT_FAILURE;
    f.claim.generation = strtoull(words[1], NULL, 10);
    snprintf(f.claim.id, sizeof(f.claim.id), "%s", words[2]);
    if (checkpoint_dir_is_stale(f.dir, &f.claim, &e))
        rc = -1;
    else if (!checkpoint_dir_is_claimed(f.dir, &f.claim))
        rc = err_set(&e, "%s is another folder than that of this job", f.dir);
    else
        rc = write_parts(&f, "CRUN_MEMORY_PARTS", false, &e);
    if (rc == 0)
        rc = write_parts(&f, "CRUN_MEMORY_COPIES", true, &e);
    while (rc == 0 && f.has_first && !is_complete(&f))
        usleep(LOOK_MS * 1000); /* crun ends it when its time is over */
    if (rc == 0 && f.has_first && words[3])
        checkpoint_dir_prune(f.dir, f.claim.generation,
                             (unsigned)strtoul(words[3], NULL, 10));
    if (rc == 0 && !f.wrote && (!flush || strcmp(flush, "0") == 0))
        return MEMORY_EXIT_IN_FILES; /* beside workers, it would end the others' */
    if (rc >= 0)
        return rc;
    fprintf(stderr, "crun: %s\n", e.text);
    return EXIT_FAILURE;
}
