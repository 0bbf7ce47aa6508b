"""The simulated clock of `simulate`: puts a clock around its grid, and the times into its study."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flwr.serverapp import Grid

from fbo_flower.algorithms.options import check_number
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.clocked_grid import ClockedGrid
from fbo_flower.simulation.duration_texts import parse_durations
from fbo_flower.simulation.durations import Durations, durations
from fbo_flower.simulation.grids import LocalGrid
from fbo_flower.strategies.result import TuningResult
from fbo_flower.study.schema import TIMES
from fbo_flower.study.study import Study
from fbo_flower.study.table import Table


class SimulatedClock:
    """The clock of one simulation; without durations it changes nothing.

    Parameters
    ----------
    given : how long evaluations take, see `durations`, or `duration_texts` for a text; None: there is no
        clock
    seed : of the durations
    exchange_seconds : time on the way of a task and its reply together
    engine : name of the engine on which the simulation runs

    Raises
    ------
    ConfigError
        If the durations are none, there is time on the way without them, or the engine has a real clock.
    """

    def __init__(
        self, given: Durations | str | None, seed: int, exchange_seconds: float = 0.0, engine: str = "inline"
    ) -> None:
        check_number("exchange_seconds", exchange_seconds, 0.0)
        if given is None and exchange_seconds:
            raise ConfigError(
                "exchange_seconds: expected durations as well, got none; exchanges take time on a simulated "
                "clock only, so pass durations=0 if evaluations take no time"
            )
        if given is not None and engine == "flower":
            raise ConfigError(
                "durations: expected engine 'inline' or 'ray', got 'flower', which has a real clock"
            )
        self._duration = None
        if given is not None:
            self._duration = parse_durations(given) if isinstance(given, str) else durations(given)
        self._exchange_seconds = float(exchange_seconds)
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
