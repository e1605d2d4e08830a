/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_HOSTS_HOST_PARSE_H
#define LAUNCHER_HOSTS_HOST_PARSE_H

/* The end of the first item of a list: a comma that is not within brackets, or the end
 * of the text. */
char *host_item_end(char *text);

#endif
