/* SPDX-License-Identifier: MIT */
#include "launcher/program/elf_needed.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"

#define SELF "/proc/self/exe"

static const char *const libc_prefixes[] = { "libnosuch.", "libc.", NULL };
static const char *const mpi_prefixes[] = { "libmpi.", NULL };

TEST(a_library_of_a_program_is_found)
{
    char library[64] = "";

    ck_assert(elf_needs(SELF, libc_prefixes, library, sizeof(library)));
    ck_assert_int_eq(strncmp(library, "libc.so", 7), 0);
    ck_assert(!elf_needs(SELF, mpi_prefixes, library, sizeof(library)));
}

TEST_LOOP(what_is_no_program_needs_nothing, 0, 4)
{
    static const char *const paths[] = { "/no/such/file", "/", "/dev/null",
                                         "/etc/passwd" };
    char library[64];

    ck_assert(!elf_needs(paths[_i], libc_prefixes, library, sizeof(library)));
}

/* Every byte of the headers with another value, and the file cut off. */
TEST(a_damaged_program_is_read_to_its_end_only)
{
    char path[] = "/tmp/test_elf_needed.XXXXXX", library[64], head[4096];
    int fd = mkstemp(path), self = open(SELF, O_RDONLY);
    ssize_t n;

    ck_assert(fd >= 0 && self >= 0);
    while ((n = read(self, head, sizeof(head))) > 0)
        ck_assert_int_eq(write(fd, head, (size_t)n), n);
    ck_assert_int_eq(pread(self, head, sizeof(head), 0), sizeof(head));
    ck_assert(elf_needs(path, libc_prefixes, library, sizeof(library)));
    for (int i = 0; i < 1024; i++) {
        char flipped = (char)~head[i];

        ck_assert_int_eq(pwrite(fd, &flipped, 1, i), 1);
        (void)elf_needs(path, libc_prefixes, library, sizeof(library));
        ck_assert_int_eq(pwrite(fd, &head[i], 1, i), 1);
    }
    for (off_t size = lseek(fd, 0, SEEK_END); size > 0; size = size / 2 - 1) {
        ck_assert_int_eq(ftruncate(fd, size), 0);
        (void)elf_needs(path, libc_prefixes, library, sizeof(library));
    }
    close(self);
    close(fd);
    unlink(path);
}
