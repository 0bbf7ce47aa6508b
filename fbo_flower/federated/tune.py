"""`tune_federation`: tune the federated training of a Flower app, from inside its ServerApp."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fbo_flower.algorithms.options import check_choice, check_number
from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.federated.checkpoints import Checkpoints, digest_of
from fbo_flower.federated.guards import Guard
from fbo_flower.federated.journal import TunerJournal, checkpoint_directory
from fbo_flower.federated.population import Evolution, Population
from fbo_flower.federated.proposals import Proposals
from fbo_flower.federated.replies import Bounds
from fbo_flower.federated.result import TunedFederation, tables_of
from fbo_flower.federated.schedules import Schedule, make_schedule
from fbo_flower.federated.step import ALL, SHARE, Step
from fbo_flower.federated.strategy_state import from_record
from fbo_flower.federated.trial_run import EvaluateFn, TrialSetup
from fbo_flower.federated.tuner import Limits, Tuner, TunerProgress
from fbo_flower.numerics.threads import single_thread
from fbo_flower.space.space import Config, SearchSpace
from fbo_flower.storage.files import writable_directory

DEFAULT_TRIALS = 20


def tune_federation(
    grid: Grid,
    build_strategy: Callable[[Config], Strategy],
    space: SearchSpace,
    metric: str = "accuracy",
    rounds: int = 16,
    *,
    initial_arrays: ArrayRecord | Callable[[Config], ArrayRecord],
    minimize: bool = False,
    budget: int | None = None,
    num_trials: int | None = None,
    schedule: str | Population = "asha",
    eta: int = 4,
    first_rung: int = 1,
    proposals: str = "ei",
    num_initial: int | None = None,
    num_parallel: int = 1,
    evaluate_on: str = SHARE,
    finalists: int = 0,
    metric_bounds: Bounds | None = None,
    max_weight: float | None = None,
    judge_by: str = "mean",
    num_clients: int | None = None,
    seed: int = 0,
    train_config: Mapping[str, object] | None = None,
    evaluate_config: Mapping[str, object] | None = None,
    evaluate_fn: EvaluateFn | None = None,
    journal: str | os.PathLike[str] | None = None,
    resume: bool = False,
    out: str | os.PathLike[str] | None = None,
    timeout: float = 3600.0,
    wait_seconds: float = 120.0,
    on_round: Callable[[TunerProgress], None] | None = None,
) -> TunedFederation:
    """Tune the hyperparameters of federated training: those of the server, and those of all clients.

    One trial is a run of the strategy that `build_strategy` returns for a configuration. After every round it
    is judged by the strategy's own aggregated evaluation metrics. Bad trials stop early; promoted ones go on
    from their own checkpoint. The clients need no change: the configuration is in the `config` record
    of their training messages.

    Parameters
    ----------
    grid : Flower's grid, as the main function of a ServerApp gets it
    build_strategy : returns a new strategy of Flower's message API for a configuration, a dict of `space`
    space : the search space; names of parameters are those that the clients read, such as "learning-rate"
    metric : name of the evaluation metric by which trials are compared
    rounds : rounds of a whole run
    initial_arrays : the model before the first round, or a function of the configuration that returns it
    minimize : whether smaller values of the metric are better
    budget : client-rounds (training messages) after which no round begins; None: no limit
    num_trials : most trials; None: 20 without a budget, no limit with one
    schedule : "asha", "halving" (synchronous successive halving), "hyperband", or "none": every trial runs to
        its end; or a `Population`, whose worst trials take over the models of its best
    eta : at a rung, the best of every `eta` trials is promoted
    first_rung : least rounds of a trial before it is compared with others
    proposals : "ei": expected improvement, or "random"
    num_initial : random configurations before the first one by "ei"; None: twice the number of parameters,
        at least 4
    num_parallel : trials that run side by side, each on its own share of the clients
    evaluate_on : "share": a trial is judged by the clients of its share; "all": by all clients, which
        costs them evaluations
    finalists : number of best trials whose models all clients judge at the end
    metric_bounds : least and largest value that the metric can have, such as (0, 1); a client's reply with
        another one is left out. None: every finite number is believed
    max_weight : a client that reports more rows (`num-examples`) than this multiple of the others' median
        counts with that multiple; None: every number is believed
    judge_by : "mean": trials are judged by the metric that the strategy aggregates; "median": by the weighted
        median of the clients' own values, which a few false ones cannot move far
    num_clients : clients to wait for; None: until their number stops changing
    seed : of all draws; the same seed gives the same trials if the clients answer the same
    train_config, evaluate_config : further entries of the clients' `config` records
    evaluate_fn : evaluates a model on the server: `evaluate_fn(round, arrays)` returns a MetricRecord, whose
        metrics are added to those of the clients
    journal : file that records every round, so that an interrupted run can be resumed. Checkpoints are in a
        directory beside it
    resume : continue the run in `journal`; an empty journal starts a new one. `budget` and `num_trials`
        may be larger than before
    out : directory for the result's files
    timeout : seconds for each half-round; later replies are dropped
    wait_seconds : how long to wait for clients
    on_round : called after every round

    Raises
    ------
    ConfigError
        If an argument is wrong, too few clients connect, or the metric is missing.
    JournalError
        If the journal is in use, damaged, or was made with other settings.
    ObjectiveError
        If every trial failed.
    """
    if not isinstance(space, SearchSpace):
        raise ConfigError(f"space: expected a SearchSpace, got {kind_of(space)}")
    if not callable(build_strategy):
        raise ConfigError(
            f"build_strategy: expected a function of a configuration, got {kind_of(build_strategy)}"
        )
    _check(rounds=rounds, num_parallel=num_parallel)
    for name, value in {"budget": budget, "num_trials": num_trials, "num_clients": num_clients}.items():
        if value is not None:
            _check(**{name: value})
    check_number("finalists", finalists, 0, integer=True)
    check_choice("evaluate_on", evaluate_on, (SHARE, ALL))
    evolves = isinstance(schedule, Population)
    if evolves and num_trials is not None:
        raise ConfigError(f"num_trials: expected None with a Population, which has a size, got {num_trials}")
    if budget is None and num_trials is None and not evolves:
        num_trials = DEFAULT_TRIALS
    if num_initial is None:
        num_initial = max(4, 2 * space.dimension)
    if isinstance(schedule, Population):
        plan: Schedule = Evolution(rounds, schedule, space, seed)
        plan_name: object = asdict(schedule)
        proposals = "random"
    else:
        plan_name = schedule
        plan = make_schedule(schedule, rounds, eta, first_rung)
    proposer = Proposals(space, proposals, num_initial, seed)
    setup = TrialSetup(
        build_strategy, initial_arrays, train_config or {}, evaluate_config or {}, evaluate_fn, seed
    )
    settings: dict[str, Any] = {
        "kind": "federation", "space": space.digest, "metric": metric, "minimize": minimize, "rounds": rounds,
        "schedule": plan_name, "eta": eta, "first_rung": first_rung, "proposals": proposals,
        "num_initial": num_initial, "num_parallel": num_parallel, "evaluate_on": evaluate_on, "seed": seed,
        "model": "" if callable(initial_arrays) else digest_of(from_record(initial_arrays), {}),
    }  # fmt: skip
    guard = Guard(metric, metric_bounds, max_weight, judge_by)
    settings |= guard.settings
    directory = None if out is None else writable_directory(out)
    sign = -1.0 if minimize else 1.0
    step = Step(grid, metric, sign, timeout, evaluate_on, threading.Event(), guard)
    limits = Limits(budget, num_trials, num_parallel, finalists, num_clients, wait_seconds)
    checkpoints = Checkpoints(checkpoint_directory(journal))
    with TunerJournal(journal) as written, single_thread():
        events = written.begin(settings, resume, {"budget": budget, "num_trials": num_trials})
        tuner = Tuner(setup, step, plan, proposer, limits, written, checkpoints, on_round)
        tuner.replay(events)
        tuner.run(grid)
        settings |= {"budget": budget, "num_trials": num_trials, "spent": tuner.spent}
        result = _result(tuner, settings, rounds, sign)
    if directory is not None:
        result.save(directory)
    return result


def _result(tuner: Tuner, settings: Mapping[str, Any], rounds: int, sign: float) -> TunedFederation:
    best = tuner.ranking()[0]  # a run without a successful trial raises
    trials, curves = tables_of(list(tuner.trials.values()), rounds, sign)
    return TunedFederation(settings, trials, curves, best.number, tuner.run_of(best.number).arrays)


def _check(**numbers: int) -> None:
    for name, value in numbers.items():
        check_number(name, value, 1, integer=True)
