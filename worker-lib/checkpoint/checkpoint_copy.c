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

#define OWN_WORDS 7

struct checkpoint_copy {
    struct tensors_item *item;
    unsigned items;
    struct tensors_word *word;
    unsigned words;
    char (*name)[CHECKPOINT_ITEM_MAX];
    char (*key)[CHECKPOINT_ITEM_MAX];
    char step[24], sampler[96], optim[64], part[32], generation[24], save[64];
    crun_extra *extra;
    const struct checkpoint_memory *memory;
    bool has_optim, in_place;
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
        snprintf(c->key[i], CHECKPOINT_ITEM_MAX, "extra.%s", c->extra[i].key);
        copy_add_word(c, c->key[i], c->extra[i].value);
    }
}

static bool is_copied(const struct checkpoint_content *content, unsigned part)
{
    const struct state_part *p = &content->part[part];

    if (content->use == FOR_FILE)
        return content->whole || !is_whole(p);
    return (content->divided && p->of_parameters) == (content->use == FOR_OWN);
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
        snprintf(name, CHECKPOINT_ITEM_MAX, "%s", p->name);
    else
        snprintf(name, CHECKPOINT_ITEM_MAX, "%s@%zu", p->name, r->begin);
    c->item[c->items++] = (struct tensors_item){ name, p->type, r->count,
                                                 c->in_place ? r->data : data };
    if (c->in_place)
        return CRUN_OK;
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
    else
        c->in_place = content->use != FOR_FILE && !queues->ops->queued;
    if (s == CRUN_OK)
        s = memory_reserve(memory, queues->ops, c->in_place ? 0 : bytes);
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

/* What a file or a section has besides the state. The values of a GPU are good only if
 * the world was whole when they had arrived. */
static crun_status copy_complete(struct checkpoint_copy *c,
                                 const struct checkpoint_target *to, struct err *e)
{
    crun_status status = copy_await(c, e);

    snprintf(c->part, sizeof(c->part), "%uof%u", to->part, to->set.parts);
    snprintf(c->generation, sizeof(c->generation), "%" PRIu64, to->set.generation);
    snprintf(c->save, sizeof(c->save), "%s %" PRIu64, to->claim->id, to->set.save);
    copy_add_word(c, "part", c->part);
    copy_add_word(c, "generation", c->generation);
    copy_add_word(c, "save", c->save);
    if (status == CRUN_OK && c->memory->ops->queued)
        status = world_is_whole(to->world, e);
    return status;
}

crun_status checkpoint_copy_section(struct checkpoint_copy *c,
                                    const struct checkpoint_target *to,
                                    struct checkpoint_section *section, struct err *e)
{
    crun_status status = copy_complete(c, to, e);
    size_t front;

    *section = (struct checkpoint_section){ .front = NULL };
    if (status != CRUN_OK)
        return status;
    section->piece = calloc(c->items + 1, sizeof(*section->piece));
    section->front = tensors_make_front(c->word, c->words, c->item, c->items, &front);
    if (!section->piece || !section->front) {
        err_set(e, "no memory for a checkpoint's header");
        return CRUN_NO_MEMORY;
    }
    section->piece[section->pieces++] = (struct crun_memory_piece){ section->front,
                                                                    front };
    for (unsigned i = 0; i < c->items; i++)
        section->piece[section->pieces++] = (struct crun_memory_piece){
            c->item[i].data, tensors_item_bytes(&c->item[i])
        };
    for (size_t i = 0; i < section->pieces; i++)
        section->bytes += section->piece[i].bytes;
    return CRUN_OK;
}

void checkpoint_section_free(struct checkpoint_section *s)
{
    free(s->front);
    free(s->piece);
    *s = (struct checkpoint_section){ .front = NULL };
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

static crun_status write_and_rename(int at, const char *name,
                                    const struct checkpoint_target *to,
                                    const struct tensors_word *word, unsigned words,
                                    const struct tensors_item *item, unsigned items,
                                    struct err *e)
{
    char new_name[CHECKPOINT_NAME_MAX];
    crun_status status;
    int fd;

    /* nothing has this name, not even a link that another user put in a shared folder
     */
    checkpoint_new_name(name, new_name);
    fd = at < 0 ? -1
                : openat(at, new_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        err_set_errno(e, errno, "cannot create it");
        return errno == ENOSPC || errno == EDQUOT ? CRUN_NO_SPACE : CRUN_SYSTEM;
    }
    status = tensors_write(fd, word, words, item, items, e);
    if (status == CRUN_OK)
        status = sync_and_rename(at, fd, new_name, name, to, e);
    if (status != CRUN_OK)
        unlinkat(at, new_name, 0);
    close(fd);
    return status;
}

crun_status checkpoint_target_write(const struct checkpoint_target *to,
                                    const struct tensors_word *word, unsigned words,
                                    const struct tensors_item *item, unsigned items,
                                    struct err *e)
{
    char name[CHECKPOINT_NAME_MAX];
    int at = open(to->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    crun_status status;

    checkpoint_name(&to->set, to->part, name);
    status = write_and_rename(at, name, to, word, words, item, items, e);
    if (at >= 0)
        close(at);
    if (status != CRUN_OK)
        err_wrap(e, "checkpoint %s/%s", to->dir, name);
    return status;
}

crun_status checkpoint_copy_write(struct checkpoint_copy *c,
                                  const struct checkpoint_target *to, struct err *e)
{
    crun_status status = copy_complete(c, to, e);

    if (status == CRUN_OK)
        return checkpoint_target_write(to, c->word, c->words, c->item, c->items, e);
    err_wrap(e, "checkpoint in %s", to->dir);
    return status;
}
