/* SPDX-License-Identifier: MIT */
#include "worker-lib/checkpoint/checkpoint_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker-lib/core/status.h"
#include "worker-lib/world/world.h"

#define NAME_ROOM (STATE_NAME_MAX + 24) /* and where a range begins */
#define OWN_WORDS 7

/* -- writing a copy ---------------------------------------------------------------- */

struct checkpoint_copy {
    struct tensors_item *item;
    unsigned items;
    struct tensors_word *word;
    unsigned words;
    char (*name)[NAME_ROOM];
    char (*key)[NAME_ROOM];
    char step[24], sampler[96], optim[64];
    crun_extra *extra;
    const struct checkpoint_memory *memory;
    bool has_optim;
};

/* The ranges of one rank do not overlap. */
static bool is_whole(const struct state_part *p)
{
    size_t held = 0;

    for (unsigned i = 0; i < p->ranges; i++)
        held += p->range[i].count;
    return held == p->total;
}

bool checkpoint_is_sharded(const struct state_part *part, unsigned parts)
{
    for (unsigned i = 0; i < parts; i++)
        if (!is_whole(&part[i]))
            return true;
    return false;
}

static void copy_add_word(struct checkpoint_copy *c, const char *key, const char *value)
{
    c->word[c->words++] = (struct tensors_word){ key, value };
}

/* The optimizer's is known when the copy has arrived. */
static void copy_add_words(struct checkpoint_copy *c,
                           const struct checkpoint_content *content)
{
    const crun_sampler_state *sampler = &content->sampler;

    snprintf(c->step, sizeof(c->step), "%" PRIu64, content->step);
    snprintf(c->sampler, sizeof(c->sampler),
             "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, sampler->samples,
             sampler->seed, sampler->pass, sampler->dealt);
    copy_add_word(c, "format", "crun checkpoint 1");
    copy_add_word(c, "step", c->step);
    copy_add_word(c, "sampler", c->sampler);
    copy_add_word(c, "optimizer", c->optim);
    for (size_t i = 0; i < content->extras; i++) {
        snprintf(c->key[i], NAME_ROOM, "extra.%s", c->extra[i].key);
        copy_add_word(c, c->key[i], c->extra[i].value);
    }
}

static bool is_copied(const struct checkpoint_content *content, unsigned part)
{
    return content->whole || !is_whole(&content->part[part]);
}

static void count_copied(const struct checkpoint_content *content, unsigned *items,
                         size_t *bytes)
{
    *items = 0;
    *bytes = 0;
    for (unsigned i = 0; i < content->parts; i++) {
        const struct state_part *p = &content->part[i];

        for (unsigned r = 0; is_copied(content, i) && r < p->ranges; r++) {
            *bytes += p->range[r].count * crun_dtype_size(p->type);
            ++*items;
        }
    }
}

static bool copy_alloc(struct checkpoint_copy *c, unsigned items, size_t extras)
{
    c->item = calloc(items + 1, sizeof(*c->item));
    c->name = calloc(items + 1, sizeof(*c->name));
    c->word = calloc(extras + OWN_WORDS, sizeof(*c->word));
    c->key = calloc(extras + 1, sizeof(*c->key));
    c->extra = calloc(extras + 1, sizeof(*c->extra));
    return c->item && c->name && c->word && c->key && c->extra;
}

void checkpoint_memory_free(struct checkpoint_memory *m)
{
    if (m->ops) {
        m->ops->host_free(m->data);
        m->ops->free_note(m->note);
    }
    *m = (struct checkpoint_memory){ 0 };
}

static crun_status memory_reserve(struct checkpoint_memory *m,
                                  const struct device_ops *ops, size_t bytes)
{
    crun_status s;

    if (m->ops == ops && m->size >= bytes)
        return CRUN_OK;
    checkpoint_memory_free(m);
    m->ops = ops;
    s = ops->host_alloc(bytes, &m->data);
    m->note = s == CRUN_OK ? ops->make_note() : NULL;
    if (m->note)
        m->size = bytes;
    else
        checkpoint_memory_free(m);
    return s == CRUN_OK && !m->note ? status_fail(CRUN_NO_MEMORY, "no pinned memory")
                                    : s;
}

static crun_status copy_add_range(struct checkpoint_copy *c, const struct state_part *p,
                                  const struct state_range *r, void *queue, char **to)
{
    size_t bytes = r->count * crun_dtype_size(p->type);
    char *name = c->name[c->items], *data = *to;

    if (r->count == p->total)
        snprintf(name, NAME_ROOM, "%s", p->name);
    else
        snprintf(name, NAME_ROOM, "%s@%zu", p->name, r->begin);
    c->item[c->items++] = (struct tensors_item){ name, p->type, r->count, data };
    *to += bytes;
    return bytes ? c->memory->ops->copy(queue, data, r->data, bytes) : CRUN_OK;
}

/* Copies the parts that are in use, or the others. */
static crun_status copy_add_parts(struct checkpoint_copy *c,
                                  const struct checkpoint_content *content, bool in_use,
                                  void *queue, char **to)
{
    crun_status s = CRUN_OK;

    for (unsigned i = 0; i < content->parts; i++) {
        const struct state_part *p = &content->part[i];

        if (p->in_use != in_use || !is_copied(content, i))
            continue;
        for (unsigned r = 0; s == CRUN_OK && r < p->ranges; r++)
            s = copy_add_range(c, p, &p->range[r], queue, to);
    }
    return s;
}

/* The note is the last to arrive. */
static crun_status copy_queue(struct checkpoint_copy *c,
                              const struct checkpoint_content *content,
                              const struct state_queues *queues)
{
    const struct device_ops *ops = queues->ops;
    char *to = c->memory->data;
    crun_status s = copy_add_parts(c, content, true, queues->program, &to);

    if (s == CRUN_OK)
        s = ops->follow(queues->beside, queues->program);
    if (s == CRUN_OK)
        s = copy_add_parts(c, content, false, queues->beside, &to);
    return s == CRUN_OK
               ? ops->write_note(queues->beside, c->memory->note, content->optim,
                                 c->has_optim ? sizeof(*content->optim) : 0)
               : s;
}

crun_status checkpoint_copy_take(struct checkpoint_copy **copy,
                                 const struct checkpoint_content *content,
                                 const struct state_queues *queues,
                                 struct checkpoint_memory *memory)
{
    struct checkpoint_copy *c = calloc(1, sizeof(*c));
    crun_status s = CRUN_OK;
    unsigned items;
    size_t bytes;

    *copy = NULL;
    count_copied(content, &items, &bytes);
    if (!c || !copy_alloc(c, items, content->extras))
        s = status_fail(CRUN_NO_MEMORY, "no memory for a copy of the state");
    if (s == CRUN_OK)
        s = memory_reserve(memory, queues->ops, bytes);
    if (s == CRUN_OK) {
        if (content->extras)
            memcpy(c->extra, content->extra, content->extras * sizeof(*c->extra));
        copy_add_words(c, content);
        c->has_optim = content->optim != NULL;
        c->memory = memory;
        s = copy_queue(c, content, queues);
    }
    if (s == CRUN_OK)
        *copy = c;
    else
        checkpoint_copy_free(c);
    return s;
}

void checkpoint_copy_free(struct checkpoint_copy *c)
{
    if (!c)
        return;
    free(c->item);
    free(c->name);
    free(c->word);
    free(c->key);
    free(c->extra);
    free(c);
}

static crun_status copy_await(struct checkpoint_copy *c, struct err *e)
{
    struct optim_scalars optim = { .scale = 1 };
    const void *note = c->memory->ops->read_note(c->memory->note);

    if (!note) {
        err_set(e, "cannot copy the state: %s", crun_error_text());
        return CRUN_SYSTEM;
    }
    if (c->has_optim)
        memcpy(&optim, note, sizeof(optim));
    snprintf(c->optim, sizeof(c->optim), "%" PRIu64 " %a %" PRIu32, optim.steps,
             (double)optim.scale, optim.good);
    return CRUN_OK;
}

static crun_status sync_and_rename(int dir, int fd, const char *new_name,
                                   const char *name, const struct checkpoint_target *to,
                                   struct err *e)
{
    if (fsync(fd) < 0) {
        err_set_errno(e, errno, "cannot sync it");
        return errno == ENOSPC || errno == EDQUOT ? CRUN_NO_SPACE : CRUN_SYSTEM;
    }
    /* after the sync, which may take long; a newer start removes unfinished files */
    if (checkpoint_dir_is_stale(to->dir, to->claim, e))
        return CRUN_STALE;
    if (renameat(dir, new_name, dir, name) < 0 || fsync(dir) < 0) {
        err_set_errno(e, errno, "cannot rename it");
        return CRUN_SYSTEM;
    }
    return CRUN_OK;
}

static crun_status write_tensors(struct checkpoint_copy *c, int fd,
                                 const struct checkpoint_target *to, struct err *e)
{
    char which[32], generation[24], save[64];
    crun_status status;

    snprintf(which, sizeof(which), "%uof%u", to->part, to->set.parts);
    snprintf(generation, sizeof(generation), "%" PRIu64, to->set.generation);
    snprintf(save, sizeof(save), "%s %" PRIu64, to->claim->id, to->set.save);
    c->word[c->words] = (struct tensors_word){ "part", which };
    c->word[c->words + 1] = (struct tensors_word){ "generation", generation };
    c->word[c->words + 2] = (struct tensors_word){ "save", save };
    status = copy_await(c, e);
    if (status == CRUN_OK && c->memory->ops->queued)
        status = world_is_whole(to->world, e);
    return status == CRUN_OK
               ? tensors_write(fd, c->word, c->words + 3, c->item, c->items, e)
               : status;
}

crun_status checkpoint_copy_write(struct checkpoint_copy *c,
                                  const struct checkpoint_target *to, struct err *e)
{
    char name[CHECKPOINT_NAME_MAX], new_name[CHECKPOINT_NAME_MAX];
    int at = open(to->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
    crun_status status = CRUN_SYSTEM;

    /* nothing has this name, not even a link that another user put in a shared folder
     */
    checkpoint_new_name(checkpoint_name(&to->set, to->part, name), new_name);
    fd = at < 0 ? -1
                : openat(at, new_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        status = errno == ENOSPC || errno == EDQUOT ? CRUN_NO_SPACE : CRUN_SYSTEM;
        err_set_errno(e, errno, "cannot create it");
    } else {
        status = write_tensors(c, fd, to, e);
        if (status == CRUN_OK)
            status = sync_and_rename(at, fd, new_name, name, to, e);
        if (status != CRUN_OK)
            unlinkat(at, new_name, 0);
        close(fd);
    }
    if (at >= 0)
        close(at);
    if (status != CRUN_OK)
        err_wrap(e, "checkpoint %s/%s", to->dir, name);
    return status;
}

/* -- reading ----------------------------------------------------------------------- */

struct checkpoint_source {
    struct tensors **file;
    unsigned files;
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
    }
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
    free(s->file);
    free(s->moved);
    free(s);
}

void checkpoint_source_facts(const struct checkpoint_source *s,
                             struct checkpoint_facts *f)
{
    const struct tensors *t = s->file[0];

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
    char key[NAME_ROOM];

    for (size_t i = 0; i < extras; i++) {
        snprintf(key, sizeof(key), "extra.%s", extra[i].key);
        snprintf(extra[i].value, sizeof(extra[i].value), "%s",
                 word_or_empty(s->file[0], key));
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
