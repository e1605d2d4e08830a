#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# takes: 5 s
# sanitizers: no, the real NCCL is not compiled with one
#
# The headers of all releases of NCCL, and the libraries of the newest and the oldest.
cd "$(dirname "$0")/../../.." || exit 1
scripts/checks/nccl-releases --newest-and-oldest
