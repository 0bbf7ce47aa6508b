"""`fed-ei`: expected improvement with an anonymous pool of all agents' observations.

Observations enter, once and without a name, a table of slots that is summed securely: everybody learns the
rows (a point and a standardised value), and of each only that it is of a member of its sum, if the server
follows the protocol. The rows are the data of a Gaussian process of what agents have in common, and an agent
adds a process of its own (`numerics.surrogates.trend`).

A study begins with `num_initial` random trials of each agent. Their report brings moments of the values, so
that all can use common units; one exchange without a trial brings a row of each. The next trial repeats the
row that the agent's model expects most of, all later ones maximise expected improvement. A late agent has
the pool before its first trial. A row enters the sum of the task that asked for its trial, or none;
trials that repeat rows enter none. `docs/papers/fed_ei.md` has the equations, and what others learn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
from numpy.random import Generator

from fbo_flower.algorithms.aims import MOST_OUTPUTS
from fbo_flower.algorithms.ei.local import PRIORS, LocalEI, Model, fit_of, kept_with, measured
from fbo_flower.algorithms.ei.pool import (
    MOST_ROWS,
    Part,
    Pool,
    asks_for_level,
    bounds_of_rows,
    check_task,
    most_agents,
    num_slots,
)
from fbo_flower.algorithms.messages import SUM, Content, Replies
from fbo_flower.algorithms.options import check_secure_sums, checked, choice, integer
from fbo_flower.algorithms.protocol import Progress, TrialsPerRound
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Report, Task, Trials, floats
from fbo_flower.algorithms.requests import Condition, Draws, Evaluation, Rng, compute
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics import slots
from fbo_flower.numerics.acquisition.feasible import FeasibleImprovement
from fbo_flower.numerics.acquisition.guided import GuidedImprovement, Shared
from fbo_flower.numerics.arrays import AnyArray, Array
from fbo_flower.numerics.optim.maximise import keeps_distance
from fbo_flower.numerics.surrogates import trend
from fbo_flower.numerics.surrogates.fitting import LENGTHSCALE_CENTRE, Known
from fbo_flower.numerics.surrogates.transforms import winsorise
from fbo_flower.space.space import SearchSpace

NEVER = 2**62  # no trial
LEAST_SHARE = 0.8  # of common variance, for a trial that repeats a row
LEAST_ROWS = 3  # from which on there is a pool
MOST_TOPS, NUM_PEAKS = 16, 4  # rows near which a step looks: the best, and those with the largest trend
OWN_STDDEV, COMMON_STDDEV = 0.85, 0.5  # of log lengthscales, around those of `ei` and of the pool


@dataclass(frozen=True)
class FedEIState:
    """The server's state.

    Parameters
    ----------
    space, progress : the search space; every agent's next trial
    rows : `(m, D + S)`, points and values, oldest first: those that a model may use now or later
    level : `(5 S,)`, sums of moments of the agents' first values
    theta : hyperparameters `(S, F + 2)` fitted to the rows; None: there are too few
    num_fitted : rows read from all tables when they were fitted
    introduced : agents that have made the exchange without a trial
    advised : agent -> the first trial for which there was a pool; it repeats a row
    num_read, num_lost : rows read from all tables, and slots that held several rows or none that can be
    """

    space: SearchSpace
    rows: Array
    level: Array
    progress: Progress = field(default_factory=Progress)
    theta: Array | None = None
    num_fitted: int = 0
    introduced: frozenset[str] = frozenset()
    advised: Mapping[str, int] = field(default_factory=dict)
    num_read: int = 0
    num_lost: int = 0


@dataclass(frozen=True, kw_only=True)
class FedEI(LocalEI[FedEIState], TrialsPerRound):
    """Federated expected improvement with an anonymous pool.

    Parameters
    ----------
    num_initial : random trials of an agent that finds no pool, 2 or more
    y_transform : how values are transformed before they are put into common units: "winsorise" (diverged low
        values are raised) or "standardise" (not at all)
    secure_sums : smallest number of agents in a sum: a row comes from one of at least that many agents. A
        smaller federation tunes alone. 0: the server sees which agent each row comes from
    shared_outputs : names of those outputs of a trial that rows hold; (): all that no operator keeps to
        itself, or the value that the objective returns
    """

    name: ClassVar[str] = "fed-ei"
    task_content: ClassVar[type[Content]] = Pool
    report_content: ClassVar[type[Content]] = Part
    barrier: ClassVar[str] = ""
    needs_all_parameters: ClassVar[str] = ""
    takes_outputs: ClassVar[bool] = True

    num_initial: int = integer(2, 2, 10_000)
    y_transform: str = choice("winsorise", ("winsorise", "standardise"))
    secure_sums: int = checked(3, check_secure_sums)
    shared_outputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.shared_outputs
        is_list = isinstance(names, tuple) and all(isinstance(name, str) for name in names)
        if not is_list or not len(set(names)) == len(names) <= MOST_OUTPUTS:
            raise ConfigError(f"shared_outputs: expected up to {MOST_OUTPUTS} names, got {names!r:.200}")

    @property
    def num_values(self) -> int:
        """The number of values of a row, `S`."""
        return max(1, len(self.shared_outputs))

    @property
    def _names(self) -> AnyArray:
        """The names of a row's values, as bytes."""
        return np.frombuffer("\n".join(self.shared_outputs).encode(), dtype=np.uint8)

    def for_outputs(self, names: tuple[str, ...]) -> Self:
        unknown = [name for name in self.shared_outputs if name not in names]
        if unknown:
            raise ConfigError(
                f"shared_outputs: expected some of {', '.join(names) or 'none'}, which all agents share, got "
                f"{', '.join(unknown)}"
            )
        return replace(self, shared_outputs=self.shared_outputs or names)

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: Generator) -> FedEIState:
        space, num_values = federation.space, self.num_values
        rows = np.empty((0, space.dimension + num_values))
        return FedEIState(space, rows, np.zeros(num_values * trend.NUM_SUMS))

    def ask(
        self, state: FedEIState, phase: Phase, server_round: int, present: Sequence[str], rng: Generator
    ) -> tuple[FedEIState, dict[str, Task]]:
        if phase is not Phase.TRAIN:
            return state, {}
        state = self._fitted(state)
        trials = {agent: state.progress.of(agent) for agent in present}
        has_pool = state.theta is not None
        # if the sum of moments failed, agents have units of their own
        begun = max(trials.values(), default=0) >= self.num_initial
        enough = begun and len(trials) >= max(2, self.secure_sums)
        has_units = has_pool or most_agents(state.level) >= 2.0 or enough
        opening = set[str]()
        if has_pool:
            state = replace(state, advised={**trials, **state.advised})
        elif most_agents(state.level) >= 2.0:
            opening = {a for a in present if trials[a] == self.num_initial and a not in state.introduced}
        group = min(len(present), 4 * self.secure_sums or len(present))
        each = 1 if opening else self.trials_per_round
        common = Pool(
            rows=state.rows if has_pool else None,
            lengthscales=np.exp(state.theta[:, :-2]).ravel() if state.theta is not None else None,
            level=state.level if has_units else None,
            slots=slots.num_slots(group * each) if has_units else 0,
        )
        tasks = {}
        for agent, trial in trials.items():
            num_trials = 0 if agent in opening else self.trials_from(trial, has_pool)
            advises = trial == state.advised.get(agent)
            begins = has_units and not has_pool and trial < self.num_initial
            # all members of a sum have tasks of one kind; others have a trial that brings no row
            alone = advises or begins or (self.secure_sums and opening and agent not in opening)
            own = replace(common, slots=0) if alone else common
            tasks[agent] = own.task(phase, server_round, trial, num_trials)
        return state, tasks

    def tell(self, state: FedEIState, phase: Phase, replies: Replies) -> FedEIState:
        if phase is not Phase.TRAIN:
            return state
        introduced = state.introduced | {agent for agent, report in replies.items() if not report.num_trials}
        state = replace(state, progress=state.progress.advance(replies), introduced=introduced)
        return (self._read_sums if self.secure_sums else self._read_clear)(state, replies)

    def _read_clear(self, state: FedEIState, replies: Replies) -> FedEIState:
        """Return the state with reports that are not in secure sums, as if their tables had been summed."""
        if (level := replies.sum("level")) is not None:
            state = replace(state, level=state.level + level)
        rows, places = [state.rows[:0]], [np.empty(0, dtype=np.int64)]
        for part in map(Part.of, replies.values()):  # their order makes no difference to the table
            if part.rows is not None and part.slots is not None:
                rows.append(part.rows)
                places.append(part.slots)
        drawn = np.concatenate(places)
        table = slots.write(np.concatenate(rows), drawn, int(drawn.max(initial=0)) + 1)
        return self._with_rows(state, *slots.read(table, *bounds_of_rows(table.shape[1], self.num_values)))

    def _read_sums(self, state: FedEIState, replies: Replies) -> FedEIState:
        """Return the state with the tables and moments of each group of a secure sum."""
        for agents, sums in replies.groups:
            level, table = sums["level"], sums["table"]
            counts = level[:: trend.NUM_SUMS]
            if ((counts >= 0.0) & (counts <= len(agents))).all():
                state = replace(state, level=state.level + level)
            rows, lost = slots.read(table, *bounds_of_rows(table.shape[1], self.num_values))
            fills = len(rows) + lost > len(agents) * self.trials_per_round  # a member writes more than it may
            state = self._with_rows(state, rows[:0] if fills else rows, lost + fills * len(rows))
        return state

    def _with_rows(self, state: FedEIState, rows: Array, num_lost: int) -> FedEIState:
        """Return the state with new rows, without those that no model will use."""
        state = replace(state, num_read=state.num_read + len(rows), num_lost=state.num_lost + num_lost)
        if not len(rows):
            return state
        every = np.concatenate([state.rows, rows])
        useful = trend.most_useful(every[:, state.space.dimension :], MOST_ROWS)
        return replace(state, rows=every[useful])

    def _fitted(self, state: FedEIState) -> FedEIState:
        """Return the state with lengthscales that fit its rows."""
        is_fitted = state.theta is not None and state.num_fitted == state.num_read
        if is_fitted or len(state.rows) < LEAST_ROWS:
            return state
        points, z = np.split(state.rows, [state.space.dimension], axis=1)
        x, starts = state.space.features(points), [None] * z.shape[1] if state.theta is None else state.theta
        theta = [trend.fitted_lengthscales(x, *pair) for pair in zip(z.T, starts, strict=True)]
        return replace(state, theta=np.array(theta), num_fitted=state.num_read)

    def progress_lines(self, state: FedEIState, before: FedEIState) -> list[str]:
        read, lost = state.num_read - before.num_read, state.num_lost - before.num_lost
        if lost <= max(4, read):
            return []
        return [
            f"fed-ei: {lost} slots of a sum hold several rows, or none that an honest agent writes; {read} "
            "hold one. An agent may fill the table; rows in these slots are not used"
        ]

    def export_messages(self, state: FedEIState) -> dict[str, AnyArray]:
        if not len(state.rows):
            return {}
        return {"rows": state.rows, "level": state.level, "outputs": self._names}

    def warm_start(self, state: FedEIState, messages: Mapping[str, AnyArray]) -> FedEIState:
        """Return a state with an earlier study's pool."""
        rows, level = (floats(messages.get(name, np.empty(0))) for name in ("rows", "level"))
        bounds = bounds_of_rows(state.rows.shape[1], self.num_values)
        fits = rows.shape[1:] == state.rows.shape[1:] and level.shape == state.level.shape
        fits = fits and np.array_equal(messages.get("outputs", np.empty(0)), self._names)
        if not fits or not slots.within(rows, *bounds).all() or not np.isfinite(level).all():
            raise ConfigError(
                f"warm_start: expected rows (m, {state.rows.shape[1]}) and level {state.level.shape} of a "
                f"fed-ei study of this search space and these outputs, got {rows.shape} and {level.shape}"
            )
        return self._with_rows(replace(state, level=level), rows, 0)

    # -- the agent's half ----------------------------------------------------------------------

    def accept(self, task: Task, agent_state: AgentState) -> AgentState:
        """Return the agent's state with a note of which trials the task asks for; only these make rows.

        If the agent makes a random trial, the task brings no row: rows of the others look different.
        """
        if task.phase is not Phase.TRAIN:
            return agent_state
        check_task(task, self.num_values)
        following, stored = max(agent_state.next_trial, task.trial), agent_state.arrays
        opened = agent_state.next_trial == self.num_initial and not len(stored.get("rows.own", ()))
        comes_again = task.end <= agent_state.next_trial if task.num_trials else opened
        if comes_again and "rows.new" in stored and num_slots(task):  # it gets the same answer, masked once
            return agent_state
        searches = num_slots(task) > 0 and not self.is_random(task, agent_state)
        alone = self.secure_sums > 0 and SUM not in task.values
        begins = NEVER if num_slots(task) and task.num_trials and (alone or not searches) else following
        own = self._own_rows(agent_state)
        return agent_state.write(
            **{"rows.own": own, "rows.new": own[:0], "rows.begin": np.array([begins], dtype=np.int64)}
        )

    def session(self, task: Task, agent_state: AgentState, draws: Draws, evaluate: Evaluation) -> AgentState:
        check_task(task, self.num_values)
        if not {*self.shared_outputs} <= {*agent_state.aims.names}:
            known, got = ", ".join(agent_state.aims.names) or "none", ", ".join(self.shared_outputs)
            raise WireError(f"shared_outputs: expected some of {known}, got {got}", "options")
        if agent_state.aims.has_outputs and not len(agent_state.history):
            nothing = np.empty((0, len(agent_state.aims.names)))
            agent_state = replace(agent_state, history=replace(agent_state.history, outputs=nothing))
        most = max(self.num_initial, self.trials_per_round)
        if task.num_trials > most:
            raise WireError(f"num-trials: expected at most {most}, got {task.num_trials}", "values")
        agent_state = super().session(task, agent_state, draws, evaluate)
        rows = self._rows_for(task, agent_state)
        return agent_state.write(**{"rows.new": rows})

    def is_random(self, task: Task, agent_state: AgentState) -> bool:
        """Return whether the next point is a random one: never for one that the pool advises."""
        if "rows" not in task.arrays:
            return super().is_random(task, agent_state)
        return not agent_state.history.num_succeeded and not self._is_advised(task, agent_state)

    def _is_advised(self, task: Task, agent_state: AgentState) -> bool:
        """Return whether the next trial repeats a row of the pool."""
        advises = "rows" in task.arrays and not num_slots(task)
        return advises and agent_state.next_trial <= task.trial

    def step(self, task: Task, agent_state: AgentState, rng: Generator) -> tuple[Trials, Array | None]:
        """Return the next point: the row of which the model expects most, or by expected improvement."""
        model = self.model(task, agent_state)
        if self._is_advised(task, agent_state):
            space = agent_state.space
            points = space.snap(floats(task.arrays["rows"])[:, : space.dimension])
            features = space.features(points)
            seen = space.features(agent_state.history.points)
            new = keeps_distance(features[None], seen[None], self.min_distance)[0]
            if new.any():
                points, features = points[new], features[new]
                if isinstance(model.improvement, FeasibleImprovement):
                    expected = model.improvement.liked(features)
                else:
                    expected = model.improvement.mean(features)
                return Trials(points[[int(np.argmax(expected))]]), model.fitted
        return self.climb(model, agent_state, rng), model.fitted

    def model(self, task: Task, agent_state: AgentState) -> Model:
        """Return the agent's model of its values, over the trend of others' rows if it has any."""
        model = super().model(task, agent_state)
        centres = self._centres(Pool.of(task), agent_state, model.improvement)
        return replace(model, centres=np.concatenate([model.centres, centres]))

    def outputs_for(self, task: Task, agent_state: AgentState) -> tuple[Array, Array, Array, Array]:
        """Return features, outputs, limits and reference; what rows hold is in common units."""
        x, *own_units = self.outputs(agent_state)
        ys, least, start = (array.copy() for array in own_units)
        aims, values = agent_state.aims, measured(agent_state.history)[1]
        used = self._shared(agent_state) if self._others(task, agent_state) is not None else []
        for place, output in enumerate(used):
            _, y, units = self._in_units(Pool.of(task), agent_state, place)
            if np.isfinite(least[output]):
                ys[output], least[output] = units.limited(values[:, output], aims.least[output])
            else:
                ys[output] = units.clipped(y)
            start[output : output + 1] = units(aims.start[output : output + 1])
        return x, ys, least, start

    def process(
        self, task: Task, agent_state: AgentState, output: int, x: Array, y: Array
    ) -> tuple[GuidedImprovement, Array, Array]:
        """Return the process of an output, over the trend of others' rows if they hold it."""
        pool, shared = Pool.of(task), self._shared(agent_state)
        place = shared.index(output) if output in shared else 0
        rows = self._others(task, agent_state, place) if output in shared else None
        if rows is None:
            return super().process(task, agent_state, output, x, y)
        tau = self._level(pool, place).own_tau
        stored = agent_state.arrays.get("hyperparameters")
        noise = 0.0 if stored is None else float(np.exp(np.atleast_2d(floats(stored))[output, -1]))
        share = trend.share_of(rows, x, y, tau, max(noise, PRIORS.noise_centre))
        share = max(share, LEAST_SHARE) if self._is_advised(task, agent_state) else share
        guide = Shared(rows, share, tau)
        mean, covariance = guide.prior(x)
        own = np.log(LENGTHSCALE_CENTRE * np.sqrt(agent_state.space.breadth))
        centre = np.exp(own + share * (np.log(rows.lengthscales) - own))
        known = Known(covariance, centre, OWN_STDDEV + share * (COMMON_STDDEV - OWN_STDDEV), 1.0 - share)
        fitted = compute(fit_of(agent_state, x, y - mean, known, output))
        process = compute(Condition(x, y - mean, fitted, covariance))
        return GuidedImprovement(process, 0.0, guide), process.means + mean, fitted.to_array()

    def _centres(
        self, pool: Pool, agent_state: AgentState, improvement: GuidedImprovement | FeasibleImprovement
    ) -> Array:
        """Return points of others that a step looks at.

        They are the best rows, and those with the largest trend; of rows with several values those where the
        agent expects the largest improvement.
        """
        space = agent_state.space
        if pool.rows is None or pool.level is None:
            return np.empty((0, space.dimension))
        points, z = np.split(floats(pool.rows), [space.dimension], axis=1)
        tops, features = min(MOST_TOPS, max(int(pool.level[0]), 1)), space.whole.features(points)
        if isinstance(improvement, FeasibleImprovement):
            return space.snap(points[np.argsort(-improvement(features), kind="stable")[: tops + NUM_PEAKS]])
        shared = improvement.shared
        if shared is None or not shared.share:
            return np.empty((0, space.dimension))
        best = np.argsort(-z[:, 0], kind="stable")[:tops]
        cross = shared.rows.cross(features)
        peaks = np.argsort(-shared.rows.mean(cross, shared.share), kind="stable")[:NUM_PEAKS]
        return space.snap(points[np.concatenate([best, peaks])])

    def _others(self, task: Task, agent_state: AgentState, place: int = 0) -> trend.SharedRows | None:
        """Return the rows of others with one of their values: those in the task without own ones.

        None if there are too few.
        """
        if "rows" not in task.arrays:
            return None
        every, dimension = floats(task.arrays["rows"]), agent_state.space.dimension
        scales = floats(task.arrays["lengthscales"]).reshape(self.num_values, -1)[place]
        others = slots.others(every, self._own_rows(agent_state))
        if len(others) < 2:
            return None
        kept = kept_with(every)  # agents in one process share the arrays of their tasks
        key = "rows", agent_state.space.whole.digest, place, scales.tobytes()
        if key not in kept:
            x = agent_state.space.whole.features(every[:, :dimension])
            kept[key] = trend.SharedRows(x, every[:, dimension + place], scales)
        own = *key, others.tobytes()
        if own not in kept:
            kept[own] = kept[key].others(others)
        found: trend.SharedRows = kept[own]
        return found

    def _shared(self, agent_state: AgentState) -> list[int]:
        """Return which outputs of the agent the values of a row are; a plain value counts as the first."""
        names = agent_state.aims.names
        return [names.index(name) for name in self.shared_outputs] if agent_state.aims.has_outputs else [0]

    def _writes(self, agent_state: AgentState) -> bool:
        """Return whether the agent writes rows: its operator fixes no parameter, keeps no value."""
        kept = {*agent_state.aims.private} & {*self.shared_outputs}
        return agent_state.space.whole is agent_state.space and not kept and bool(self._shared(agent_state))

    def _level(self, pool: Pool, place: int) -> trend.Level:
        """Return what is known of the units of one of the values of a row."""
        if pool.level is None:
            return trend.Level()
        return trend.Level.of(floats(pool.level).reshape(self.num_values, -1)[place], self.num_initial)

    def _in_units(
        self, pool: Pool, agent_state: AgentState, place: int = 0
    ) -> tuple[Array, Array, trend.Units]:
        """Return features `(n, F)`, one of the values of a row `(n,)`, and its common units."""
        points, outputs = measured(agent_state.history)
        values, x = outputs[:, self._shared(agent_state)[place]], agent_state.space.features(points)
        y = winsorise(values) if self.y_transform == "winsorise" else values
        scales = None
        if pool.lengthscales is not None:
            scales = floats(pool.lengthscales).reshape(self.num_values, -1)[place]
        return x, y, self._level(pool, place).units(x, y, scales)

    def _own_rows(self, agent_state: AgentState) -> Array:
        """Return the agent's own rows `(k, D + S)` that may be in a sum."""
        none = np.empty((0, agent_state.space.dimension + self.num_values))
        return np.concatenate([floats(agent_state.arrays.get(f"rows.{n}", none)) for n in ("own", "new")])

    def _rows_for(self, task: Task, agent_state: AgentState) -> Array:
        """Return the rows `(r, D + S)` of a task, in the units of now: of its trials, or of the initial ones.

        A row enters the sum of the task that asked for its trial, or none: each trial of a sum is made with
        what all its members were told, and no row can be asked for again.
        """
        history, none = agent_state.history, self._own_rows(agent_state)[:0]
        if not num_slots(task) or not self._writes(agent_state):
            return none
        done = np.flatnonzero(np.isfinite(history.final_values(own=True)))  # this study's completed trials
        trials = history.trials[done]
        if task.num_trials:
            begin = int(agent_state.arrays.get("rows.begin", [task.trial])[0])
            done = done[(trials >= max(begin, task.trial)) & (trials < task.end)]
        elif agent_state.next_trial == self.num_initial and not len(agent_state.arrays.get("rows.own", ())):
            done = done[trials >= 0]
        else:
            return none
        pool, columns = Pool.of(task), [history.observed()[0]]
        for place in range(self.num_values):
            _, values, units = self._in_units(pool, agent_state, place)
            columns.append(units.clipped(values)[:, None])
        rows = np.concatenate(columns, axis=1)[done]
        if not task.num_trials:  # two rows in units of their own would show that they are of one agent
            rows = rows[np.argsort(-rows[:, agent_state.space.dimension], kind="stable")[:1]]
        return slots.rounded(rows)

    def _moments(self, task: Task, agent_state: AgentState, rng: Generator) -> Array:
        """Return the moments `(5 S,)` of the values of an initial task; zeros if there are fewer than two."""
        history = agent_state.history
        trials, values = history.trials, history.final_values(own=True)
        begin = int(agent_state.arrays.get("rows.begin", [0])[0])
        used = np.isfinite(values) & (trials >= begin) & (trials < task.end) & (begin == task.trial == 0)
        outputs = values[:, None] if history.outputs is None else history.outputs
        return np.concatenate(
            [trend.level_sums(outputs[used, output], rng) for output in self._shared(agent_state)]
        )

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        if not self._writes(agent_state) or task.phase is not Phase.TRAIN:
            return Part()
        if asks_for_level(task):
            level = self._moments(task, agent_state, rng())
            return Part(level=level if level.any() else None)
        rows, size = floats(agent_state.arrays["rows.new"]), num_slots(task)
        if not len(rows):
            return Part()
        drawn = rng().choice(size, len(rows), replace=False)  # no row of its own meets another
        if self.secure_sums:
            return Part(table=slots.write(rows, drawn, size))
        return Part(rows=rows, slots=drawn)

    def check_report(self, task: Task, report: Report) -> None:
        """Raise WireError if a report holds what the task did not ask for, or more of it."""
        if "level" in report.arrays and not asks_for_level(task):
            raise WireError("level: expected none from a task that tells the level, got one", "names")
        rows, drawn = (np.array(report.arrays.get(n, ()), np.float64) for n in ("rows", "slots"))
        if len(rows) != len(drawn) or (drawn >= num_slots(task)).any():
            got = f"{len(rows)} rows and slots {drawn.tolist()}"
            raise WireError(f"slots: expected one below {num_slots(task)} for each row, got {got}", "content")
        if len(rows) > (task.num_trials or 1):
            raise WireError(f"rows: expected one for each trial of the task, got {len(rows)}", "shape")
