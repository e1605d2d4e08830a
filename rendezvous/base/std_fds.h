/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_BASE_STD_FDS_H
#define RENDEZVOUS_BASE_STD_FDS_H

/* Open descriptors 0 to 2 that are closed, on /dev/null: no socket must become one. */
void std_fds_keep(void);

#endif
