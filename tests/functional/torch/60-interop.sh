#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# takes: 30 s
# sanitizers: no, test_tcpstore and the fuzzers have the store's server do the same
#
# The newest PyTorch from PyPI works with the store server: see tests/lib/interop.py.
cd "$(dirname "$0")/../../.." || exit 1
scripts/checks/interop newest
status=$?
if [[ $status -eq 77 ]]; then
    printf '%s\n' '************************************************************' \
        '* SKIPPED: PyPI cannot be reached, so no real PyTorch client *' \
        '* was tried against the store server.                       *' \
        '************************************************************' >&2
fi
exit $status
