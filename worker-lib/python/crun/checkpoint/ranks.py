# SPDX-License-Identifier: MIT
"""The agreement of the ranks, over a group of their own that no collective of the program
shares."""
from typing import Any, List, Tuple

import torch
import torch.distributed as dist

import crun

LOST, GIVEN_UP, NOT_YET, KEPT = range(4)  # what a rank knows of its part in memory; LOST: of the folder


class Ranks:
    """All ranks of the program; also one alone, without torch.distributed."""

    def __init__(self) -> None:
        together = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if together else 0
        self.size = dist.get_world_size() if together else 1
        if not together and crun.world_size() > 1:
            raise RuntimeError("crun.checkpoint: the ranks save together: call "
                               "torch.distributed.init_process_group first")
        self.group: Any = dist.new_group(backend="gloo") if self.size > 1 else None
        self._work: Any = None
        self._bits = torch.tensor([KEPT, 0, 0, 0], dtype=torch.int32)

    def all(self, value: bool) -> bool:
        """Whether it is so on all ranks."""
        bit = torch.tensor([int(value)], dtype=torch.int32)
        if self.group:
            dist.all_reduce(bit, dist.ReduceOp.MIN, self.group)
        return bool(bit.item())

    def differ(self, values: torch.Tensor) -> torch.Tensor:
        """Which of these integers are not the same on all ranks."""
        both = torch.cat((values, -values))
        if self.group:
            dist.all_reduce(both, dist.ReduceOp.MIN, self.group)
        least, most = both.chunk(2)
        return least != -most

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value."""
        values = [value]
        if self.group:
            dist.broadcast_object_list(values, src=0, group=self.group)
        return values[0]

    def gather(self, value: Any) -> List[Any]:
        """The values of all ranks."""
        values = [value] * self.size
        if self.group:
            dist.all_gather_object(values, value, self.group)
        return values

    # The ranks tell each other once a step, and nobody waits for it before the next one: it
    # is also the proof that all have come to the end of the step.

    def ask(self, kept: int, wanted: bool, sum_: int = 0) -> None:
        self._bits = torch.tensor([kept, -int(wanted), sum_, -sum_], dtype=torch.int32)
        if self.group:
            self._work = dist.all_reduce(self._bits, dist.ReduceOp.MIN, self.group,
                                         async_op=True)

    def last_answer(self) -> Tuple[int, bool, bool]:
        """The least of all `kept`, whether any `wanted`, and whether sums differ. It fails if a rank
        is dead."""
        if self._work is not None:
            work, self._work = self._work, None
            work.wait()
        kept, wanted, least, most = self._bits.tolist()
        return kept, wanted < 0, least != -most
