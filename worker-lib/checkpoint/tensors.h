/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

#include "rendezvous/common/base/err.h"
#include "worker-lib/crun/worker.h"

/*
 * Files of named tensors and metadata in the safetensors format: eight bytes with the
 * header's length, the header (JSON), the data. The first metadata of our files is
 * "crc32": the checksum of the whole file, with zeros in place of its own eight digits.
 */
struct tensors_word {
    const char *key, *value;
};

struct tensors_item {
    const char *name;
    crun_dtype type;
    size_t count;
    const void *data;
};

/* CRUN_NO_SPACE, CRUN_SYSTEM, CRUN_NO_MEMORY. */
crun_status tensors_write(int fd, const struct tensors_word *word, unsigned words,
                          const struct tensors_item *item, unsigned items,
                          struct err *e);

/* What a file has before the data: length and header, with a checksum of zeros. The
 * caller frees it; NULL: no memory. */
uint8_t *tensors_make_front(const struct tensors_word *word, unsigned words,
                            const struct tensors_item *item, unsigned items,
                            size_t *size);
size_t tensors_item_bytes(const struct tensors_item *item);

/* Maps a file and verifies its checksum: CRUN_NOT_FOUND, CRUN_CORRUPT, CRUN_SYSTEM. */
struct tensors;
crun_status tensors_open(struct tensors **t, const char *path, struct err *e);
void tensors_close(struct tensors *t); /* NULL is fine */
/* The bytes of a file, which stay where they are; their checksum is not looked at. */
crun_status tensors_open_bytes(struct tensors **t, const void *bytes, size_t size,
                               struct err *e);

const char *tensors_word(const struct tensors *t, const char *key); /* or NULL */
/* All but the checksum, which the caller frees; NULL: no memory. */
struct tensors_word *tensors_words(const struct tensors *t, unsigned *words);
unsigned tensors_count(const struct tensors *t);
const struct tensors_item *tensors_item(const struct tensors *t, unsigned i);
