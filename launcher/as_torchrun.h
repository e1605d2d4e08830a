/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * crun as-torchrun COMMAND...: executes the command. Where a Python process of it would
 * start torchrun, in whatever way, it starts this crun; see crun/as_torchrun.py.
 */
void as_torchrun_main_if_asked(int argc, char **argv);
