/* SPDX-License-Identifier: MIT */
#include "worker-lib/checkpoint/checkpoint_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct checkpoint_source {
    struct tensors **file;
    unsigned files;
    const struct tensors *words;     /* the file that has those of rank 0 */
    struct crun_memory_part *memory; /* NULL: the files are files */
    char path[PATH_MAX];
    struct moved *moved; /* each parameter, in the order of this training */
    unsigned parameters;
};

/* The optimizer's state counts elements over all parameters. A parameter's are those
 * from `there` on in the file, and from `here` on in this training. */
struct moved {
    size_t here, there, count;
};

/* A range of a part's elements in one file. */
struct stored_range {
    size_t begin, count;
    crun_dtype type;
    const void *data;
};

/* Whether an item is the part of that name or a range of it, and where the range
 * begins. */
static bool item_is_of(const struct tensors_item *item, const char *name, size_t *begin)
{
    size_t length = strlen(name);
    char *end;

    if (strncmp(item->name, name, length) != 0)
        return false;
    *begin = 0;
    if (item->name[length] == '\0')
        return true;
    if (item->name[length] != '@' || item->name[length + 1] < '0' ||
        item->name[length + 1] > '9')
        return false;
    *begin = strtoull(item->name + length + 1, &end, 10);
    return *end == '\0';
}

/* The range of the part of that name that has element `at`. */
static bool find_stored_range(const struct checkpoint_source *s, const char *name,
                              size_t at, struct stored_range *p)
{
    for (unsigned f = 0; f < s->files; f++)
        for (unsigned i = 0; i < tensors_count(s->file[f]); i++) {
            const struct tensors_item *item = tensors_item(s->file[f], i);

            *p = (struct stored_range){ 0, item->count, item->type, item->data };
            if (item_is_of(item, name, &p->begin) && at >= p->begin &&
                at - p->begin < p->count)
                return true;
        }
    return false;
}

/* The number of the part's elements in all files. */
static size_t count_elements(const struct checkpoint_source *s, const char *name)
{
    size_t sum = 0, begin;

    for (unsigned f = 0; f < s->files; f++)
        for (unsigned i = 0; i < tensors_count(s->file[f]); i++)
            if (item_is_of(tensors_item(s->file[f], i), name, &begin))
                sum += tensors_item(s->file[f], i)->count;
    return sum;
}

/* The path of another part of the same checkpoint. */
static void sibling_path(const char *path, const struct checkpoint_set *set,
                         unsigned part, char *buf, size_t size)
{
    const char *slash = strrchr(path, '/');
    char name[CHECKPOINT_NAME_MAX];

    snprintf(buf, size, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path,
             checkpoint_name(set, part, name));
}

static const char *word_or_empty(const struct tensors *t, const char *key)
{
    const char *value = tensors_word(t, key);

    return value ? value : "";
}

static bool is_part_of_set(const struct tensors *t, const struct tensors *first,
                           unsigned part, unsigned parts)
{
    char which[32];

    snprintf(which, sizeof(which), "%uof%u", part, parts);
    return strcmp(word_or_empty(t, "part"), which) == 0 &&
           strcmp(word_or_empty(t, "step"), word_or_empty(first, "step")) == 0 &&
           strcmp(word_or_empty(t, "save"), word_or_empty(first, "save")) == 0 &&
           strcmp(word_or_empty(t, "generation"), word_or_empty(first, "generation")) ==
               0;
}

static crun_status source_open_parts(struct checkpoint_source *s,
                                     const struct checkpoint_set *set, struct err *e)
{
    char path[PATH_MAX];

    for (unsigned part = 1; part <= set->parts; part++) {
        crun_status status;

        if (set->parts == 1)
            snprintf(path, sizeof(path), "%s", s->path); /* regardless of its name */
        else
            sibling_path(s->path, set, part, path, sizeof(path));
        status = tensors_open(&s->file[part - 1], path, e);
        if (status != CRUN_OK)
            return status;
        s->files = part;
        if (!is_part_of_set(s->file[part - 1], s->file[0], part, set->parts)) {
            err_set(e, "%s: it is not part %u of %u of a checkpoint", path, part,
                    set->parts);
            return CRUN_CORRUPT;
        }
    }
    return CRUN_OK;
}

crun_status checkpoint_source_open(struct checkpoint_source **source, const char *path,
                                   struct err *e)
{
    struct checkpoint_source *s = calloc(1, sizeof(*s));
    const char *slash = strrchr(path, '/');
    struct checkpoint_set set;
    crun_status status = CRUN_NO_MEMORY;
    unsigned part;

    *source = NULL;
    if (!checkpoint_parse(slash ? slash + 1 : path, &set, &part))
        set.parts = 1;
    if (s)
        s->file = calloc(set.parts, sizeof(struct tensors *));
    if (!s || !s->file) {
        err_set(e, "no memory to read %s", path);
    } else {
        snprintf(s->path, sizeof(s->path), "%s", path);
        status = source_open_parts(s, &set, e);
        s->words = s->file[0];
    }
    if (status == CRUN_OK)
        *source = s;
    else
        checkpoint_source_close(s);
    return status;
}

/* -- in memory --------------------------------------------------------------------- */

static crun_status source_add_section(struct checkpoint_source *s, crun_memory *m,
                                      unsigned rank, bool shared, struct err *e)
{
    struct crun_memory_part *part = &s->memory[s->files];
    crun_status status;

    if (crun_memory_read(m, rank, shared, part, e) < 0)
        return CRUN_CORRUPT;
    status = tensors_open_bytes(&s->file[s->files], part->data, part->bytes, e);
    if (status == CRUN_OK)
        s->files++;
    else
        crun_memory_part_free(part);
    return status;
}

/* The shared section has the parameters, as the first file; rank 0's own has the words,
 * and how many own sections there are. */
static crun_status source_add_sections(struct checkpoint_source *s, crun_memory *m,
                                       struct err *e)
{
    unsigned parts = 0, world = crun_memory_restores(m)->world;
    crun_status status = source_add_section(s, m, 0, true, e);

    if (status == CRUN_OK)
        status = source_add_section(s, m, 0, false, e);
    if (status != CRUN_OK)
        return status;
    s->words = s->file[1];
    sscanf(word_or_empty(s->words, "part"), "1of%u", &parts);
    if (parts != 1 && parts != world) {
        err_set(e, "rank 0's part is one of %u, and the world had %u ranks", parts,
                world);
        return CRUN_CORRUPT;
    }
    for (unsigned rank = 1; status == CRUN_OK && rank < parts; rank++)
        status = source_add_section(s, m, rank, false, e);
    return status;
}

crun_status checkpoint_source_recall(struct checkpoint_source **source, crun_memory *m,
                                     struct err *e)
{
    struct checkpoint_source *s = calloc(1, sizeof(*s));
    size_t most = (size_t)crun_memory_restores(m)->world + 1;
    crun_status status = CRUN_NO_MEMORY;

    *source = NULL;
    if (s) {
        s->file = calloc(most, sizeof(struct tensors *));
        s->memory = calloc(most, sizeof(*s->memory));
        snprintf(s->path, sizeof(s->path), "the checkpoint in memory");
    }
    if (s && s->file && s->memory)
        status = source_add_sections(s, m, e);
    else
        err_set(e, "no memory to read the checkpoint in memory");
    if (status == CRUN_OK)
        *source = s;
    else
        checkpoint_source_close(s);
    return status;
}

void checkpoint_source_close(struct checkpoint_source *s)
{
    if (!s)
        return;
    for (unsigned i = 0; s->file && i < s->files; i++)
        tensors_close(s->file[i]);
    for (unsigned i = 0; s->memory && i < s->files; i++)
        crun_memory_part_free(&s->memory[i]);
    free(s->memory);
    free(s->file);
    free(s->moved);
    free(s);
}

void checkpoint_source_facts(const struct checkpoint_source *s,
                             struct checkpoint_facts *f)
{
    const struct tensors *t = s->words;

    *f = (struct checkpoint_facts){ .optim.scale = 1 };
    f->step = strtoull(word_or_empty(t, "step"), NULL, 10);
    sscanf(word_or_empty(t, "sampler"), "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
           &f->sampler.samples, &f->sampler.seed, &f->sampler.pass, &f->sampler.dealt);
    sscanf(word_or_empty(t, "optimizer"), "%" SCNu64 " %a %" SCNu32, &f->optim.steps,
           &f->optim.scale, &f->optim.good);
}

void checkpoint_source_extras(const struct checkpoint_source *s, crun_extra *extra,
                              size_t extras)
{
    char key[CHECKPOINT_ITEM_MAX];

    for (size_t i = 0; i < extras; i++) {
        snprintf(key, sizeof(key), "extra.%s", extra[i].key);
        snprintf(extra[i].value, sizeof(extra[i].value), "%s",
                 word_or_empty(s->words, key));
    }
}

static crun_status source_fits_part(const struct checkpoint_source *s,
                                    const struct state_part *part, struct err *e)
{
    size_t there = count_elements(s, part->name);
    struct stored_range p;

    if (!there && part->total)
        err_set(e, "%s has no %s: it is of another model or optimizer", s->path,
                part->name);
    else if (there != part->total)
        err_set(e, "%s: %s has %zu elements in the file and %zu in the training",
                s->path, part->name, there, part->total);
    else {
        for (size_t at = 0; at < part->total; at = p.begin + p.count)
            if (!find_stored_range(s, part->name, at, &p) || p.type != part->type) {
                err_set(e, "%s: %s is not complete in the file, or not of %s", s->path,
                        part->name, crun_dtype_name(part->type));
                return CRUN_MISMATCH;
            }
        return CRUN_OK;
    }
    return CRUN_MISMATCH;
}

/* An item that is in the file and not in the training; or NULL. */
static const char *find_unknown_item(const struct checkpoint_source *s,
                                     const struct state_part *part, unsigned parts)
{
    size_t begin;

    for (unsigned f = 0; f < s->files; f++)
        for (unsigned i = 0; i < tensors_count(s->file[f]); i++) {
            bool known = false;

            for (unsigned p = 0; p < parts && !known; p++)
                known = item_is_of(tensors_item(s->file[f], i), part[p].name, &begin);
            if (!known)
                return tensors_item(s->file[f], i)->name;
        }
    return NULL;
}

/* The first file has all parameters, in the order of the training that wrote it. */
static bool find_moved(struct checkpoint_source *s, const struct state_part *part,
                       unsigned parts)
{
    size_t here = 0, there = 0;
    struct moved *m = calloc(parts + 1, sizeof(*m));

    for (unsigned p = 0; m && p < parts; p++)
        if (state_is_parameter(&part[p])) {
            m[p] = (struct moved){ here, 0, part[p].total };
            here += part[p].total;
        }
    for (unsigned i = 0; m && i < tensors_count(s->file[0]); i++) {
        const struct tensors_item *item = tensors_item(s->file[0], i);
        unsigned p = 0;

        while (p < parts &&
               (!state_is_parameter(&part[p]) || strcmp(item->name, part[p].name) != 0))
            p++;
        if (p < parts) {
            m[p].there = there;
            there += item->count;
        }
    }
    s->moved = m;
    s->parameters = parts;
    return m != NULL;
}

crun_status checkpoint_source_fits(struct checkpoint_source *s,
                                   const struct state_part *part, unsigned parts,
                                   struct err *e)
{
    const char *other;

    for (unsigned i = 0; i < parts; i++) {
        crun_status status = source_fits_part(s, &part[i], e);

        if (status != CRUN_OK)
            return status;
    }
    other = find_unknown_item(s, part, parts);
    if (other) {
        err_set(e, "%s also has %s: it is of another model or optimizer", s->path,
                other);
        return CRUN_MISMATCH;
    }
    if (find_moved(s, part, parts))
        return CRUN_OK;
    err_set(e, "no memory to read %s", s->path);
    return CRUN_NO_MEMORY;
}

/* By the numbers of the file. */
static void read_stored(const struct checkpoint_source *s,
                        const struct state_part *part, size_t begin, size_t count,
                        void *out)
{
    size_t size = crun_dtype_size(part->type), end = begin + count;
    struct stored_range p;

    for (size_t at = begin; at < end && find_stored_range(s, part->name, at, &p);) {
        size_t skip = at - p.begin;
        size_t n = p.count - skip < end - at ? p.count - skip : end - at;

        memcpy((char *)out + (at - begin) * size, (const char *)p.data + skip * size,
               n * size);
        at += n;
    }
}

void checkpoint_source_read(const struct checkpoint_source *s,
                            const struct state_part *part, size_t begin, size_t count,
                            void *out)
{
    size_t size = crun_dtype_size(part->type), end = begin + count;

    if (!part->of_parameters) {
        read_stored(s, part, begin, count, out);
        return;
    }
    for (unsigned i = 0; i < s->parameters; i++) {
        const struct moved *m = &s->moved[i];
        size_t from = m->here > begin ? m->here : begin;
        size_t to = m->here + m->count < end ? m->here + m->count : end;

        if (from < to)
            read_stored(s, part, m->there + (from - m->here), to - from,
                        (char *)out + (from - begin) * size);
    }
}
