/* SPDX-License-Identifier: MIT */
#pragma once

/* The end of the first item of a list: a comma that is not within brackets, or the end
 * of the text. */
char *host_item_end(char *text);
