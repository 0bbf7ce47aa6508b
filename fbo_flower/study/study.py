"""The results of runs: every disclosed trial, every round, and each agent's best configuration.

A study holds one run per algorithm; `Study.merge` combines studies to compare their runs. On disk it is a
directory of plain files::

    study.json    settings, and the kinds and lengths of the tables below
    trials.csv    one row per evaluation: algorithm, agent, round, trial, config.*, value, failure, regret;
                  stopped_at, the last step of trials that were stopped early, if there are any;
                  best, the value at the agent's best, where noise makes another trial the best;
                  outputs.* and feasible, with several objectives or limits
    rounds.csv    one row per round: time, traffic (exchanges after the last round count towards it), numbers
                  of replies and failures, mean of the agents' best values so far
    best.json     algorithm -> agent -> its best: `config`, `value` as measured and, where values are noisy,
                  `mean`
    regret.csv    cumulative and simple regret by evaluations, where the optimum is known
    models.csv    one row per model, if one site trains and others judge: losses, whether on the Pareto front
    judgements.csv    one row per model and site that judged it
    times.csv     start and end of each disclosed trial, in seconds since 1970
    replies.csv   one row per answer of an asynchronous run: how old the information was that it was made from

Equal studies are saved as the same bytes. Values are maximised, except in a run with the setting `minimize`.
A failed trial has the value NaN, and its column `failure` has the reason. Times have a file of their own, so
that the same seed gives the same `trials.csv`. `Study.to_dataframe` returns trials and times together as a
pandas DataFrame.
"""

from __future__ import annotations

import html
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fbo_flower.errors import ConfigError, did_you_mean, kind_of
from fbo_flower.space.checks import show
from fbo_flower.space.copies import copies, own
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.paths import path_of
from fbo_flower.study import ranking, schema
from fbo_flower.study.directory import read_study, write_study
from fbo_flower.study.table import Table
from fbo_flower.study.trial import Observations, observations, trials_frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_EMPTY: Any = None  # a table that is not given has no rows


@copies("settings")
@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """The runs of one or several algorithms on one problem; read-only.

    Parameters
    ----------
    settings : plain JSON: `schema`, `name`, `created`, `versions` and `runs`, one dict per algorithm:
        `algorithm` (required), `options`, `problem`, `problem_options`, `num_agents`, `num_rounds`, `seed`,
        `engine`, `status`, `seconds`, `num_initial`, `metric`, `target_agents`; `label` if the run's name in
        the tables is not the algorithm's; `minimize` if smaller values are better; `objectives`, `reference`
        and `limits` of an objective that returns numbers by name
    trials : columns as in `study.schema.TRIALS`, and some of `OPTIONAL`
    rounds : columns as in `ROUNDS`
    regret : columns as in `REGRET`; None if the optimum is unknown
    recommendations : columns as in `RECOMMENDATIONS`, the best of each agent; by default its best trial. An
        agent without a finite value has none.
    models, judgements : columns as in `MODELS` and `JUDGEMENTS`; None if no models are exchanged
    times : columns as in `TIMES`; None if the agents did not say when they evaluated their trials
    replies : columns as in `REPLIES`; None if no run is asynchronous

    The constructor sorts each table by algorithm (in order of appearance), agent ("2" < "10") and trial.

    Raises
    ------
    ConfigError
        If the settings are not JSON of this schema, or a table does not have the expected columns.
    """

    settings: dict[str, Any]
    trials: Table
    rounds: Table
    regret: Table = _EMPTY
    recommendations: Table = _EMPTY
    models: Table = _EMPTY
    judgements: Table = _EMPTY
    times: Table = _EMPTY
    replies: Table = _EMPTY

    def __post_init__(self) -> None:
        given = self.recommendations
        for name, columns in schema.TABLES.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, Table.from_rows([], columns))
            schema.check_columns(name, getattr(self, name))
        object.__setattr__(self, "settings", schema.checked_settings(vars(self)["settings"]))
        order = {name: rank for rank, name in enumerate(self.algorithms)}
        for name in schema.TABLES:
            object.__setattr__(self, name, ranking.sorted_rows(getattr(self, name), order))
        best = Table.from_rows([], schema.RECOMMENDATIONS)
        if len(self.objectives) < 2:
            minimized = {schema.label(run) for run in self._runs if run.get("minimize")}
            best = ranking.best_rows(self.trials if given is None else given, minimized)
        object.__setattr__(self, "recommendations", ranking.sorted_rows(best, order))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say what an attribute of Optuna's studies is called here; Python finds similar names."""
            if hint := did_you_mean(name, (), type(self).__name__):
                raise AttributeError(f"a Study has no {name}{hint}", name=name, obj=None)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def algorithms(self) -> list[str]:
        """Labels of the runs, in order of appearance in the settings, then in the tables."""
        labels = [schema.label(run) for run in self._runs]
        return list(dict.fromkeys(labels + [name for t in self._tables for name in t["algorithm"].tolist()]))

    @property
    def best(self) -> dict[str, dict[str, Any]]:
        """Agent -> `{"config", "value", "algorithm"}`, the configuration that it should use.

        It is the agent's best trial, and `value` is what the objective returned there; of a bandit it is the
        mean of the pulls. Where an agent's model finds noise, it is the evaluated configuration with the best
        posterior mean, because the largest of many noisy values is mostly luck: then there is `"mean"` too,
        which is what to expect. A configuration that the server recommends and nobody has evaluated has a
        `"mean"` and no `"value"`.

        With limits it is the best trial that holds those of its agent, and `"outputs"` has its numbers by
        name. `infeasible` names the agents without such a trial. Several objectives have no best: ConfigError
        says so, and `front` has their Pareto front.
        """
        if len(self.objectives) > 1:
            raise ConfigError(
                f"best: expected one objective, got {' and '.join(self.objectives)}; use study.front(agent)"
            )
        best: dict[str, dict[str, Any]] = {}
        for row in self.recommendations:
            agent, minimize = row.pop("agent"), self.minimizes(row["algorithm"])
            numbers = {name: row[name] for name in ("value", "mean") if math.isfinite(row[name])}
            entry = {"config": row["config"], **numbers, "algorithm": row["algorithm"]}
            known = (
                ranking.expected_of(best[agent]) if agent in best else -math.inf if not minimize else math.inf
            )
            if ranking.expected_of(entry) < known if minimize else ranking.expected_of(entry) > known:
                best[agent] = entry
        for agent, entry in best.items() if "outputs" in self.trials.columns else ():
            found = self.trials.where(agent=agent, algorithm=entry["algorithm"])
            outputs = [row["outputs"] for row in found if row["config"] == entry["config"]]
            if outputs and outputs[0]:
                entry["outputs"] = dict(outputs[0])
        return {agent: best[agent] for agent in sorted(best, key=ranking.natural_order)}

    @property
    def objectives(self) -> dict[str, str]:
        """Name -> "max" or "min" of the objectives; empty if they have no names, or runs have others."""
        runs = [run.get("objectives", []) for run in self._runs]
        return dict(runs[0]) if runs and all(run == runs[0] for run in runs) else {}

    def front(
        self, agent: str, algorithm: str | None = None, reference: Mapping[str, float] | None = None
    ) -> ranking.Front:
        """Return an agent's own Pareto front, of the trials that hold its limits.

        Parameters
        ----------
        algorithm : the run whose trials count; None: those of all runs
        reference : objective -> the value from which the hypervolume is counted. By default it is that of the
            run's settings, or the worst of the agent's trials in all runs of the study that hold its limits,
            so that runs of one study can be compared. Volumes of agents, or of studies, compare only with one
            reference

        Raises
        ------
        ConfigError
            If the study has no objectives with names, no such agent or algorithm, or the reference is not a
            number for each objective.
        """
        objectives = self.objectives
        if not objectives or "outputs" not in self.trials.columns:
            raise ConfigError("front: expected a study with several objectives, got one; use study.best")
        if agent not in (agents := sorted(set(self.trials["agent"].tolist()), key=ranking.natural_order)):
            raise ConfigError(f"agent: expected one of {', '.join(agents)}, got {agent!r}")
        if algorithm is not None and algorithm not in self.algorithms:
            raise ConfigError(f"algorithm: expected one of {', '.join(self.algorithms)}, got {algorithm!r}")
        worst = dict(
            zip(objectives, ranking.worst_values(self.trials.where(agent=agent), objectives), strict=True)
        )
        if reference is not None and reference.keys() != objectives.keys():
            names = ", ".join(objectives)
            raise ConfigError(f"reference: expected a number for each of {names}, got {dict(reference)}")
        known = worst | self._runs[0].get("reference", {}) | dict(reference or {})
        point = np.array([float(known[name]) for name in objectives])
        which = {"agent": agent} | ({} if algorithm is None else {"algorithm": algorithm})
        return ranking.front_of(self.trials.where(**which), objectives, point)

    @property
    def infeasible(self) -> list[str]:
        """The agents whose trials have limits, none of which any trial holds in any run; in natural order."""
        if "feasible" not in self.trials.columns:
            return []
        agents, feasible = self.trials["agent"], self.trials["feasible"]
        return sorted(set(agents.tolist()) - set(agents[feasible].tolist()), key=ranking.natural_order)

    @property
    def best_config(self) -> dict[str, Any]:
        """The best configuration of any agent; ConfigError if none has disclosed a value."""
        config: dict[str, Any] = self._best_of_all()["config"]
        return config

    @property
    def best_value(self) -> float:
        """What its agent measured at `best_config`, or the mean if nobody has evaluated it.

        Agents are compared by their means where values are noisy. ConfigError if none has disclosed a value.
        """
        best = self._best_of_all()
        return float(best["value"] if "value" in best else best["mean"])

    def _best_of_all(self) -> dict[str, Any]:
        if not (best := list(self.best.values())):
            raise ConfigError("best: expected an agent that has disclosed a finite value, found none")
        return (min if self.any_minimizes else max)(best, key=ranking.expected_of)

    def run(self, algorithm: str) -> dict[str, Any]:
        """Return the settings of one algorithm's run; an empty dict if they were not recorded."""
        return own(self._run(algorithm))

    def minimizes(self, algorithm: str) -> bool:
        """Return whether smaller values of one algorithm's run are better."""
        return bool(self._run(algorithm).get("minimize"))

    @property
    def any_minimizes(self) -> bool:
        """Whether smaller values of some run are better; the runs of one study have the same objective."""
        return any(self.minimizes(algorithm) for algorithm in self.algorithms)

    def only(self, algorithm: str) -> Study:
        """Return a study that holds only this algorithm's run."""
        if not isinstance(algorithm, str) or algorithm not in self.algorithms:
            known = ", ".join(self.algorithms)
            raise ConfigError(f"study: expected one of {known}, got {show(algorithm)}")
        runs = [run for run in self.settings["runs"] if schema.label(run) == algorithm]
        tables = (table.where(algorithm=algorithm) for table in self._tables)
        return Study({**self.settings, "runs": runs}, *tables)

    def relabel(self, algorithm: str, new: str) -> Study:
        """Return the study with one run renamed, so that two runs of one algorithm can be merged."""
        if algorithm not in self.algorithms or new in self.algorithms:
            raise ConfigError(
                f"relabel: expected a known name and a new one besides {', '.join(self.algorithms)}, "
                f"got {algorithm!r} and {new!r}"
            )
        runs = [
            {**run, "label": new} if schema.label(run) == algorithm else run for run in self.settings["runs"]
        ]
        tables = []
        for table in self._tables:
            columns = {name: table[name] for name in table.columns}
            columns["algorithm"] = np.where(columns["algorithm"] == algorithm, new, columns["algorithm"])
            tables.append(Table(columns, table.kinds))
        return Study({**self.settings, "runs": runs}, *tables)

    @staticmethod
    def merge(studies: Sequence[Study], name: str | None = None) -> Study:
        """Return one study with the runs of all studies.

        The result has the first study's settings and the latest creation date. A run whose study was made
        with other versions keeps them in its own settings.
        """
        if not isinstance(studies, Sequence) or not all(isinstance(study, Study) for study in studies):
            raise ConfigError(f"merge: expected a list of studies, got {kind_of(studies)}")
        if not studies:
            raise ConfigError("merge: expected at least one study, got none")
        first = studies[0].settings
        labels = [algorithm for study in studies for algorithm in study.algorithms]
        if twice := sorted({algorithm for algorithm in labels if labels.count(algorithm) > 1}):
            raise ConfigError(
                f"merge: expected each algorithm once, got {', '.join(twice)} in several studies; "
                'try study.relabel("fts", "fts, seed 1")'
            )
        runs: list[dict[str, Any]] = []
        for study in studies:
            versions = study.settings.get("versions")
            own = {} if versions == first.get("versions") else {"versions": versions}
            runs += [{**own, **run} for run in study.settings["runs"]]
        settings = {**first, "runs": runs}
        if created := [study.settings["created"] for study in studies if "created" in study.settings]:
            settings["created"] = max(created)
        if name is not None:
            settings["name"] = name
        trials, *tables = zip(*(study._tables for study in studies), strict=True)
        names = {name for table in trials for name in table.columns}
        trials = tuple(schema.with_columns(table, names) for table in trials)
        return Study(settings, Table.concatenate(trials), *map(Table.concatenate, tables))

    def to_dataframe(self) -> Any:  # pandas is optional and has no types of its own
        """Return all trials as a `pandas.DataFrame`, one row per trial; see `study.trial.trials_frame`.

        Raises
        ------
        ConfigError
            If pandas is not installed.
        """
        return trials_frame(self.trials, self.times)

    def plot(self, x: str = "evaluations", *, title: str | None = None) -> Figure:
        """Return a figure of the best values, values against parameters, and the best configurations.

        A notebook shows it as a picture or, if plotly is installed, as best values and trials that say their
        agent and configuration when the mouse is over them.

        Parameters
        ----------
        x : "evaluations", or "time" for the seconds since the first evaluation of the run
        title : None: the problem, the metric and the number of agents

        Raises
        ------
        ConfigError
            If matplotlib is not installed, or times are wanted and unknown.
        """
        from fbo_flower.reports import plot

        return plot(self, x, title=title)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write one HTML page with everything that the study holds, to be opened in a browser.

        Raises
        ------
        ConfigError
            If matplotlib is not installed, or the file cannot be written.
        """
        from fbo_flower.reports import write_html_page

        write_html_page(self, path_of(path))

    def to_optuna(
        self, storage: Any = None, *, one_study: bool = False, space: SearchSpace | None = None
    ) -> list[Any]:
        """Return all trials as studies of Optuna, for `optuna.visualization` and optuna-dashboard.

        Trials that the storage holds are not written again, so it can be called again when a run has gone on.

        Parameters
        ----------
        storage : where the trials are written: "sqlite:///study.db" or another URL of Optuna, a file that
            ends in .db or .log, or a storage; None: in memory
        one_study : write the trials of all agents into one Optuna study, with the agent as a user attribute;
            otherwise each agent has an Optuna study of its own, because it has an objective of its own
        space : the search space, if the study does not hold it

        Returns
        -------
        `optuna.Study` objects, by run and agent; their user attribute `agent` names the agent.

        Raises
        ------
        ConfigError
            If Optuna is not installed, the search space is unknown, or the storage cannot be written.
        """
        from fbo_flower.study.optuna import write

        return write(self, storage, one_study, space)

    @classmethod
    def from_optuna(
        cls,
        storage: Any,
        name: str | None = None,
        *,
        agent: str | None = None,
        space: SearchSpace | None = None,
    ) -> Study:
        """Return the finished trials of Optuna studies, so that agents can begin with them.

        Pass the result as `simulate(start=Start(observations=...))`, or its `observations(space)` as
        `client_app(prior=...)` on a device.

        Parameters
        ----------
        storage : as in `to_optuna`
        name : of one Optuna study; None: all of the storage
        agent : the agent whose trials they are, unless the trials name theirs; None: the study's name
        space : the search space that the agents will have. Trials outside it are left out, with a warning

        Raises
        ------
        ConfigError
            If Optuna is not installed, there is no such study, or one has several objectives without names.
        """
        from fbo_flower.study.optuna import read_studies

        settings, trials, times = read_studies(storage, name, agent, space)
        return cls(settings, trials, Table.from_rows([], schema.ROUNDS), times=times)

    def observations(self, space: SearchSpace, without: Sequence[str] = ()) -> Observations:
        """Return agent -> points `(n, D)` and values `(n,)` of the trials that succeeded, as measured.

        Values of several outputs are a dict, name -> `(n,)`.
        This is what `client_app(prior=...)` takes.

        Parameters
        ----------
        without : agents that are left out

        Raises
        ------
        ConfigError
            If a configuration is not in the space.
        """
        return observations(self.trials, space, without)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the study's files into `directory`, which is created if it does not exist.

        Each file is replaced as a whole or, if writing fails, not at all.

        Raises
        ------
        ConfigError
            If a file cannot be written; the message names it.
        """
        tables = dict(zip(schema.TABLES, self._tables, strict=True))
        write_study(path_of(directory, "directory"), self.settings, tables)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Study:
        """Return the study that `save` wrote into `directory`.

        Raises
        ------
        ConfigError
            If a file is missing, malformed, of another schema or of another study; the message names it.
        """
        directory = path_of(directory, "directory")
        try:
            settings, tables = read_study(directory)
            return cls(settings, **tables)
        except ConfigError as error:
            message, path = str(error), directory / "study.json"
            raise ConfigError(message if str(directory) in message else f"{path}: {message}") from error

    @property
    def _runs(self) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = vars(self)["settings"]["runs"]
        return runs

    def _run(self, algorithm: str) -> dict[str, Any]:
        return next((run for run in self._runs if schema.label(run) == algorithm), {})

    @property
    def _tables(self) -> tuple[Table, ...]:
        return tuple(getattr(self, name) for name in schema.TABLES)

    __hash__ = None  # type: ignore[assignment]  # equal by value, too large to hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Study):
            return NotImplemented
        return (
            schema.as_json(self.settings) == schema.as_json(other.settings) and self._tables == other._tables
        )

    def _repr_html_(self) -> str:
        """Return the best of each agent as HTML, which notebooks show; of several objectives all trials."""
        table = self.trials if len(self.objectives) > 1 else self.recommendations
        return f"<p>{html.escape(repr(self))}</p>{table._repr_html_()}"

    def __repr__(self) -> str:
        name, runs = self.settings.get("name"), ", ".join(self.algorithms)
        return f"Study({name!r}: {runs}; {len(self.trials)} trials, {len(self.rounds)} rounds)"
