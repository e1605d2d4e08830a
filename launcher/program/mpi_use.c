/* SPDX-License-Identifier: MIT */
#include "launcher/program/mpi_use.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/program/elf_needed.h"
#include "rendezvous/common/base/xalloc.h"

#define SCRIPT_READ (256 * 1024) /* imports stand at the beginning */

/* "python -u mpi.py": the file. NULL: this is no Python, or none with a file. */
static const char *python_argument(const struct program *p)
{
    const char *slash = strrchr(p->name, '/');
    const char *const *a = p->arguments;

    if (strncmp(slash ? slash + 1 : p->name, "python", 6) != 0)
        return NULL;
    while (*a && **a == '-' && strcmp(*a, "-m") != 0 && strcmp(*a, "-c") != 0)
        a++;
    return *a && **a != '-' ? *a : NULL;
}

/* An indented import may be one of several ways that the program has. */
static bool text_imports(const char *text, const char *module)
{
    static const char *const words[] = { "import ", "from " };

    for (; text; text = strchr(text, '\n'), text += text != NULL)
        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
            size_t word = strlen(words[i]), length = strlen(module);

            if (strncmp(text, words[i], word) == 0 &&
                strncmp(text + word, module, length) == 0 &&
                strcspn(text + word + length, " .,;#\t\r\n") == 0)
                return true;
        }
    return false;
}

static bool script_imports(const char *path, const char *module)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *text;
    ssize_t length;
    bool found;

    if (fd < 0)
        return false;
    text = xmalloc(SCRIPT_READ + 1);
    length = read(fd, text, SCRIPT_READ);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    found = text_imports(text, module);
    free(text);
    return found;
}

bool mpi_use_find(const struct program *p, const char **file, char *how, size_t size)
{
    static const char *const mpi[] = { "libmpi.", "libmpi_", "libmpich.", NULL };
    char library[64];

    *file = p->kind == PROGRAM_EXECUTED ? python_argument(p) : p->name;
    if (*file && p->kind != PROGRAM_PYTHON_MODULE && script_imports(*file, "mpi4py")) {
        snprintf(how, size, "imports mpi4py");
        return true;
    }
    *file = p->name;
    if (p->kind != PROGRAM_EXECUTED ||
        !elf_needs(p->name, mpi, library, sizeof(library)))
        return false;
    snprintf(how, size, "is linked with MPI (%s)", library);
    return true;
}
