"""The simulated clock of `simulate`: puts a clock around its grid, and the times into its study."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flwr.serverapp import Grid

from fbo_flower.errors import ConfigError
from fbo_flower.simulation.clocked_grid import ClockedGrid
from fbo_flower.simulation.durations import durations, parse_durations
from fbo_flower.simulation.grids import LocalGrid
from fbo_flower.simulation.settings import Clock
from fbo_flower.strategies.result import TuningResult
from fbo_flower.study.schema import TIMES
from fbo_flower.study.study import Study
from fbo_flower.study.table import Table


class SimulatedClock:
    """The clock of one simulation; without a `Clock` it changes nothing.

    Parameters
    ----------
    given : how long evaluations and exchanges take; None: there is no clock
    seed : of the durations
    engine : name of the engine on which the simulation runs

    Raises
    ------
    ConfigError
        If the durations are none, or the engine has a real clock.
    """

    def __init__(self, given: Clock | None, seed: int, engine: str = "inline") -> None:
        if given is not None and engine == "flower":
            raise ConfigError(
                "clock: expected engine 'inline' or 'ray', got 'flower', which has a real clock"
            )
        self._duration = None
        self._exchange_seconds = 0.0
        if given is not None:
            own = given.durations
            self._duration = parse_durations(own) if isinstance(own, str) else durations(own)
            self._exchange_seconds = float(given.exchange_seconds)
        self._seed = seed
        self._times: Mapping[tuple[str, int], tuple[float, float]] | None = None

    def around(self, start: Callable[[Grid], TuningResult]) -> Callable[[Grid], TuningResult]:
        """Return `start` on a grid with the simulated clock."""
        duration = self._duration
        if duration is None:
            return start

        def clocked(grid: Grid) -> TuningResult:
            assert isinstance(grid, LocalGrid), "the engine 'flower' was refused"
            found = ClockedGrid(grid, duration, self._seed, self._exchange_seconds)
            self._times = found.times
            return start(found)

        return clocked

    def with_times(self, study: Study) -> Study:
        """Return the study with simulated times of the disclosed trials instead of measured ones."""
        if self._times is None:
            return study
        label, trials = study.algorithms[0], study.trials
        rows = [
            {"algorithm": label, "agent": agent, "trial": trial, "started": start, "ended": end}
            for agent, trial in zip(trials["agent"].tolist(), trials["trial"].tolist(), strict=True)
            if (agent, trial) in self._times
            for start, end in [self._times[agent, trial]]
        ]
        return study.with_times(Table.from_rows(rows, TIMES))
