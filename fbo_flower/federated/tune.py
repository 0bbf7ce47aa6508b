"""`tune_federation`: tune the federated training of a Flower app, from inside its ServerApp."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace

from flwr.serverapp import Grid

from fbo_flower.errors import ConfigError, explains_names, kind_of
from fbo_flower.federated.effects import Effects
from fbo_flower.federated.proposals import Proposals
from fbo_flower.federated.records import MARK, TunedFederation, tables_of
from fbo_flower.federated.replies import Judge, Metric, MetricLike
from fbo_flower.federated.schedules import Population, Search, make_schedule
from fbo_flower.federated.state import Checkpoints
from fbo_flower.federated.step import Clients, Run, Step
from fbo_flower.federated.tuner import Trackers, Tuner, TunerProgress
from fbo_flower.numerics.seeding import fresh_entropy
from fbo_flower.numerics.threads import single_thread
from fbo_flower.space.checks import check_integer
from fbo_flower.space.space import Config, SearchSpace, check_space
from fbo_flower.storage import Event, StudyJournal
from fbo_flower.storage.files import writable_directory
from fbo_flower.strategies.exchange import Stopped
from fbo_flower.strategies.process import ending_with_its_superlink, warnings_of_flower
from fbo_flower.strategies.settings import check_callbacks
from fbo_flower.study.directory import Keep
from fbo_flower.trackers.callback import Callback, StudyInfo

DEFAULT_TRIALS = 20
JOURNAL = "federation.db"  # in the directory of journals
SEARCH, JUDGE, CLIENTS = Search(), Judge(), Clients()


@explains_names
def tune_federation(
    grid: Grid,
    build: Callable[[Config], Run],
    space: SearchSpace,
    metric: MetricLike = "accuracy",
    *,
    rounds: int = 16,
    budget: int | None = None,
    search: Search = SEARCH,
    judge: Judge = JUDGE,
    clients: Clients = CLIENTS,
    seed: int = 0,
    keep: Keep | None = None,
    callbacks: Sequence[Callback | Callable[[TunerProgress], None]] = (),
) -> TunedFederation:
    """Tune the hyperparameters of federated training: those of the server, and those of all clients.

    One trial is the run that `build` returns for a configuration. After every round it is judged by the
    strategy's own aggregated evaluation metrics. Bad trials stop early; promoted ones go on from their own
    checkpoint. The clients need no change: the configuration is in the `config` record of their training
    messages.

    Parameters
    ----------
    grid : Flower's grid, as the main function of a ServerApp gets it
    build : returns the run of a configuration, a dict of `space`: a new strategy and the model to begin with
    space : the search space; names of parameters are those that the clients read, such as "learning-rate"
    metric : by which trials are compared: the name of a metric, "loss[-1]" for the last number of a list, or
        a function of the metrics, a mapping from names to numbers and lists. The metrics are those of
        `evaluate_fn`, `aggregate_evaluate` and `aggregate_train`; of equal names the first one counts
    rounds : rounds of a whole run
    budget : client-rounds (training messages) after which no round begins; None: no limit
    search : which configurations are tried, and for how long
    judge : how trials are judged by the metric
    clients : how long the server waits for clients
    seed : of all draws; the same seed gives the same trials if the clients answer the same
    keep : where results and journals are written, and whether to resume; an empty directory of journals
        begins a run. A resumed run may have a larger `budget` or `num_trials` than before. None: nothing
    callbacks : trackers, which show one trial per configuration with its value after each round, see
        `fbo_flower.trackers`; and functions that are called with the `TunerProgress` of every round

    Raises
    ------
    ConfigError
        If an argument is wrong, too few clients connect, or the metric is missing.
    JournalError
        If the journal is in use, damaged, or was made with other settings.
    ObjectiveError
        If every trial failed.
    """
    _check(build, space, keep, {"search": search, "judge": judge, "clients": clients})
    rounds, seed = check_integer("rounds", rounds, 1), check_integer("seed", seed, 0)
    if budget is not None:
        budget = check_integer("budget", budget, 1)
    keep, evolves = keep or Keep(), isinstance(search.schedule, Population)
    if evolves:
        search = replace(search, proposals="random")
    elif budget is None and search.num_trials is None:
        search = replace(search, num_trials=DEFAULT_TRIALS)
    if search.num_initial is None:
        search = replace(search, num_initial=max(4, 2 * space.dimension))
    schedule = make_schedule(search.schedule, rounds, search.eta, search.first_rung, space, seed)
    proposals = Proposals(space, search.proposals, search.num_initial or 0, seed)
    judged_by = Metric(metric)
    settings = {
        **asdict(search), **asdict(judge), "kind": "federation", "space": space.digest,
        "metric": judged_by.name, "rounds": rounds, "seed": seed,
        "bounds": judge.bounds and list(judge.bounds),
    }  # fmt: skip
    limits = {"budget": budget, "num_trials": settings.pop("num_trials")}
    del settings["finalists"]
    check_callbacks(callbacks)
    directory = None if keep.out is None else writable_directory(keep.out)
    if directory is not None and (directory / MARK).exists() and not (keep.overwrite or keep.resume):
        raise ConfigError(
            f"out: expected a directory without a result, got {directory}; pass overwrite=True to replace it"
        )
    path = None
    if keep.journals is not None:
        path = writable_directory(keep.journals, private=True, name="journals") / JOURNAL
    checkpoints = Checkpoints(None if path is None else path.with_name(f"{path.name}.checkpoints"))
    with ExitStack() as stack:
        stack.enter_context(single_thread())
        stack.enter_context(warnings_of_flower())
        grid = stack.enter_context(ending_with_its_superlink(grid))
        step = Step(grid, judged_by, judge, clients, Effects(space.names))
        journal = None if path is None else stack.enter_context(StudyJournal(path))
        events = _begin(journal, keep, settings, limits)
        study = str(events[0].values["study"])
        num_replayed = sum("rounds" in event.values for event in events)
        info = StudyInfo(study, "tune_federation", "tune_federation", dict(settings), space, judge.minimize,
                         num_replayed=num_replayed)  # fmt: skip
        trackers = Trackers(callbacks, info, rounds)
        tuner = Tuner(
            build, seed, step, schedule, proposals, journal, checkpoints, budget, search, callbacks,
            trackers,
        )  # fmt: skip
        tuner.replay(events)
        _run(tuner, keep)
        best = tuner.ranking()[0]  # a run without a successful trial raises
        tables = tables_of(tuner.trials, rounds, judge.sign)
        settings |= {**limits, "spent": tuner.spent, "without_effect": step.effects.without(tuner.trials)}
        result = TunedFederation(settings, *tables, best.number, tuner.run_of(best.number).arrays)
    if directory is not None:
        result.save(directory)
    return result


def _begin(
    journal: StudyJournal | None, keep: Keep, settings: Mapping[str, object], limits: Mapping[str, int | None]
) -> list[Event]:
    """Return the events of the run so far; the first one holds the run's id, which trackers show."""
    begun = Event("federation", values={"study": f"{fresh_entropy():032x}"[-16:]})
    if journal is None:
        return [begun]
    events = journal.begun(keep.resume)
    journal.begin(settings, limits)
    if not events:
        journal.write([begun])
    return events or [begun]


def _run(tuner: Tuner, keep: Keep) -> None:
    """Run the tuner, and tell the trackers how it has ended."""
    status = "failed"
    try:
        tuner.run()
        status = "finished"
    except Stopped:
        status = "interrupted"
        raise
    except KeyboardInterrupt:  # not with the long traceback of whatever ran just then
        status = "interrupted"
        raise KeyboardInterrupt(f"tune_federation was interrupted; {keep.how_to_continue()}") from None
    finally:
        resumable = tuner.journal is not None and status != "finished"
        tuner.trackers.finished(tuner.trials, tuner.ranking()[:1], status, resumable=resumable)


def _check(build: object, space: object, keep: object, groups: Mapping[str, object]) -> None:
    check_space(space)
    if not callable(build):
        raise ConfigError(f"build: expected a function of a configuration, got {kind_of(build)}")
    for (name, value), kind in zip(groups.items(), (Search, Judge, Clients), strict=True):
        if not isinstance(value, kind):
            raise ConfigError(f"{name}: expected {kind.__name__}(...), got {kind_of(value)}")
    if keep is not None and not isinstance(keep, Keep):
        raise ConfigError(f"keep: expected Keep(...), got {kind_of(keep)}")
    if keep is not None and (keep.messages is not None or keep.label is not None):
        raise ConfigError("keep: expected no messages and no label, which a tuned federation does not have")
