/* SPDX-License-Identifier: MIT */
#pragma once

/* `crun --agent-stdin`: the node that a launcher starts on this host. Returns unless
 * argv asks for it. */
void far_node_main_if_asked(int argc, char **argv);
/* `crun --agent-socket`, in the same way. */
void far_socket_main_if_asked(int argc, char **argv);
