/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* Open descriptors 0 to 2 that are closed, on /dev/null: no socket must become one. */
void fd_keep_std(void);

/* Close every descriptor from `first` on. */
void fd_close_from(int first);

/*
 * Write all of data, also to a descriptor that another process has made non-blocking.
 * Returns 0 or an errno value; *size is then the number of bytes left.
 */
int fd_write_all(int fd, const void *data, size_t *size);

/*
 * Open a file to write to, with O_APPEND or O_TRUNC in `flags`; it is created if there
 * is none. Another user may have put something in its place if the folder is shared: a
 * link is followed only if it belongs to this user or root, and a file with a second
 * name, or a FIFO or device of another user, is not opened. Returns -1 and errno.
 */
int fd_create_file(const char *path, int flags, mode_t mode);

/*
 * Read up to the end of the file, at most size - 1 bytes, and end them with a NUL.
 * Returns their number, or -1 and errno.
 */
ssize_t fd_read_all(int fd, char *text, size_t size);

/* The same of the file at path, which is relative to the directory `dir`. */
ssize_t fd_read_file(int dir, const char *path, char *text, size_t size);
