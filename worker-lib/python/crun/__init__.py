# SPDX-License-Identifier: MIT
"""What a training program tells its crun, and asks it."""
