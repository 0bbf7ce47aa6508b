"""Split a federation's clients among trials that run side by side.

The clients form as many *blocks* as there are places for trials, drawn once by the seed, of sizes that
differ by one at most. In every round each trial gets a block, and with fewer trials than blocks some get
several. Which ones: those that the trials have had least often. So every trial comes to see all clients, and
trials that compete are trained and judged by the same groups of clients, at most some rounds apart.

The assignment minimises `sum (v + 1/2)` over the pairs of trial and block, with `v` the number of times that
the trial has had the block: that is the increase of `sum v^2 / 2`, whose minimum is reached when all counts
of a trial are equal. It is the linear assignment problem, solved exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fbo_flower.numerics.seeding import generator


class Shares:
    """The blocks of clients, and which trial has had which.

    Parameters
    ----------
    num_blocks : `K`, places for trials
    seed : of the division into blocks
    """

    def __init__(self, num_blocks: int, seed: int) -> None:
        self._num_blocks, self._seed = num_blocks, seed
        self._block_of: dict[int, int] = {}
        self._visits: dict[int, list[int]] = {}  # trial -> how often it has had each block

    def assign(self, trials: Sequence[int], clients: Sequence[int]) -> dict[int, list[int]]:
        """Return the clients of each trial in the next round; every client is in one share.

        Parameters
        ----------
        trials : numbers of the trials that run, at most `K`
        clients : ids of the clients that are connected
        """
        members = self._members(clients)
        if not trials:
            return {}
        order = sorted(trials)
        visits = np.array([self._visits.setdefault(trial, [0] * self._num_blocks) for trial in order])
        shares: dict[int, list[int]] = {trial: [] for trial in order}
        for trial, block in assignment(visits):
            shares[order[trial]] += members[block]
        return {trial: sorted(share) for trial, share in shares.items()}

    def note(self, shares: Mapping[int, Sequence[int]]) -> None:
        """Count a round that was done with these shares."""
        for trial, share in shares.items():
            counts = self._visits.setdefault(trial, [0] * self._num_blocks)
            for block in {self._block_of[client] for client in share if client in self._block_of}:
                counts[block] += 1

    def visits(self, trial: int) -> list[int]:
        """Return how often a trial has had each block, `(K,)`."""
        return list(self._visits.get(trial, [0] * self._num_blocks))

    def put_visits(self, trial: int, visits: Sequence[int]) -> None:
        """Set how often a trial has had each block, when a tuner resumes."""
        self._visits[trial] = list(visits)

    def _members(self, clients: Sequence[int]) -> list[list[int]]:
        """Return the connected clients of each block; a client that comes later joins the smallest one."""
        sizes = [0] * self._num_blocks
        for client in clients:
            if client in self._block_of:
                sizes[self._block_of[client]] += 1
        new = [client for client in sorted(clients) if client not in self._block_of]
        order = generator(self._seed, "federation", "blocks", len(self._block_of)).permutation(len(new))
        for position in order:
            block = int(np.argmin(sizes))
            self._block_of[new[position]] = block
            sizes[block] += 1
        members: list[list[int]] = [[] for _ in range(self._num_blocks)]
        for client in clients:
            members[self._block_of[client]].append(client)
        return members


def assignment(visits: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> list[tuple[int, int]]:
    """Return pairs (trial, block) that give every block to one trial, and each trial as many as the others.

    Parameters
    ----------
    visits : `(T, K)` with `T <= K`, how often each trial has had each block
    """
    from scipy.optimize import linear_sum_assignment

    num_trials, num_blocks = visits.shape
    # a trial has as many rows as it may get blocks; a second block is dear, so that all get a first one
    copies = -(-num_blocks // num_trials)
    dear = float(visits.max(initial=0) + 1) * num_blocks
    cost = np.concatenate([visits + 0.5 + dear * copy for copy in range(copies)])
    rows, columns = linear_sum_assignment(cost)
    return [(int(row) % num_trials, int(column)) for row, column in zip(rows, columns, strict=True)]
