/* SPDX-License-Identifier: MIT */
/* Reads the dynamic section of an ELF file, which may be damaged: every offset is
 * checked against the size of the file. */
#include "launcher/program/elf_needed.h"

#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define OWN_CLASS (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)

struct elf_file {
    const char *bytes;
    size_t size;
};

/* The bytes at offset, if that many are there; aligned as the struct needs it. */
static const void *elf_at(const struct elf_file *f, uint64_t offset, uint64_t size)
{
    if (offset % sizeof(void *) != 0 || offset > f->size || size > f->size - offset)
        return NULL;
    return f->bytes + offset;
}

static const ElfW(Phdr) * program_headers(const struct elf_file *f, size_t *count)
{
    const ElfW(Ehdr) *header = elf_at(f, 0, sizeof(*header));

    if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != OWN_CLASS ||
        header->e_phentsize != sizeof(ElfW(Phdr)))
        return NULL;
    *count = header->e_phnum;
    return elf_at(f, header->e_phoff, *count * sizeof(ElfW(Phdr)));
}

/* The offset in the file of an address of the program; UINT64_MAX: none. */
static uint64_t offset_of_address(const ElfW(Phdr) * p, size_t count, uint64_t address)
{
    for (size_t i = 0; i < count; i++)
        if (p[i].p_type == PT_LOAD && address >= p[i].p_vaddr &&
            address - p[i].p_vaddr < p[i].p_filesz)
            return p[i].p_offset + (address - p[i].p_vaddr);
    return UINT64_MAX;
}

static bool begins_with_one_of(const char *name, const char *const *prefixes)
{
    for (; *prefixes; prefixes++)
        if (strncmp(name, *prefixes, strlen(*prefixes)) == 0)
            return true;
    return false;
}

static bool find_needed(const struct elf_file *f, const char *const *prefixes,
                        char *library, size_t size)
{
    const ElfW(Dyn) *dynamic = NULL;
    uint64_t texts = UINT64_MAX;
    size_t count = 0, entries = 0;
    const ElfW(Phdr) *p = program_headers(f, &count);

    for (size_t i = 0; p && i < count; i++)
        if (p[i].p_type == PT_DYNAMIC) {
            entries = p[i].p_filesz / sizeof(*dynamic);
            dynamic = elf_at(f, p[i].p_offset, p[i].p_filesz);
        }
    for (size_t i = 0; dynamic && i < entries; i++)
        if (dynamic[i].d_tag == DT_STRTAB)
            texts = offset_of_address(p, count, dynamic[i].d_un.d_ptr);
    for (size_t i = 0; dynamic && i < entries && texts < f->size; i++) {
        uint64_t at = dynamic[i].d_un.d_val;

        if (dynamic[i].d_tag != DT_NEEDED || at >= f->size - texts ||
            !memchr(f->bytes + texts + at, '\0', f->size - texts - at) ||
            !begins_with_one_of(f->bytes + texts + at, prefixes))
            continue;
        snprintf(library, size, "%s", f->bytes + texts + at);
        return true;
    }
    return false;
}

bool elf_needs(const char *path, const char *const *prefixes, char *library,
               size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct elf_file f = { .bytes = MAP_FAILED };
    bool needs = false;
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        f.size = (size_t)st.st_size;
        f.bytes = mmap(NULL, f.size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (f.bytes != MAP_FAILED) {
        needs = find_needed(&f, prefixes, library, size);
        munmap((void *)f.bytes, f.size);
    }
    if (fd >= 0)
        close(fd);
    return needs;
}
