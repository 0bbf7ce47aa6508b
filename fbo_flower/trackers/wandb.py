"""`WandbTracker`: a run of Weights & Biases for each study."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from fbo_flower.study.trial import Trial
from fbo_flower.trackers.callback import RoundInfo, StudyInfo
from fbo_flower.trackers.tracker import Tracker, finite, scalars_of

if TYPE_CHECKING:
    from fbo_flower.study.study import Study

_COLUMNS = ("agent", "trial", "round", "state", "value", "failure")
_ENDS = {"finished": 0, "interrupted": 255, "failed": 1}  # exit codes by which W&B names the state of a run


class WandbTracker(Tracker):
    """Writes a study into a run of Weights & Biases while it runs.

    Each round gives the numbers of `rounds.csv` as `rounds/NAME`, and `agents/AGENT/value`, `best` (so far),
    `failed` (0 or 1) and `config/NAME` of the agents that disclose trials. The table `trials` has all trials
    at the end. A resumed study goes on in the same run, from the first round that was not reported.

    Parameters
    ----------
    directory : where W&B writes; its folder `wandb` is created there
    mode : "offline" writes files, which `wandb sync` uploads when you decide to; "online" sends everything to
        W&B at once. That is another party, which then learns what the server knows
    project : name of the project

    Raises
    ------
    ConfigError
        If wandb is not installed.
    """

    def __init__(
        self, directory: str | PathLike[str] = ".", *, mode: str = "offline", project: str = "fbo-flower"
    ) -> None:
        super().__init__("Weights & Biases", "wandb")
        self._directory, self._project = str(directory), project
        self._mode: Any = mode  # wandb checks it
        self._run: Any = None  # wandb has no types where it is missing

    def _reset(self) -> None:
        self._rows: list[Trial] = []
        self._waves: list[dict[str, float]] = []  # the n-th trials of the agents in this round
        self._place: dict[str, int] = {}  # agent -> its number of trials in this round

    def _keep(self, trial: Trial, best: float) -> None:
        self._rows.append(trial)
        numbers = scalars_of(trial, best) | {"trial": float(trial.trial)}
        place = self._place.get(trial.agent, 0)
        self._place[trial.agent] = place + 1
        if place == len(self._waves):
            self._waves.append({})
        self._waves[place] |= {f"agents/{trial.agent}/{name}": number for name, number in numbers.items()}

    def on_round(self, study: StudyInfo, finished: RoundInfo) -> None:
        """Write the numbers of a round and of its trials, unless an earlier process did."""
        self._begin(study)
        waves, self._waves, self._place = self._waves or [{}], [], {}
        if finished.round > study.num_replayed:
            waves[-1] |= {f"rounds/{name}": number for name, number in finite(finished.numbers).items()}
            for wave in waves:
                self._run_of(study).log({"round": finished.round, **wave})

    def on_finish(self, study: StudyInfo, result: Study) -> None:
        """Write the table of all trials and end the run."""
        import wandb

        self._begin(study)
        run = self._run_of(study)
        names = list(dict.fromkeys(name for trial in self._rows for name in trial.config))
        table = wandb.Table([*_COLUMNS, *(f"config.{name}" for name in names)], allow_mixed_types=True)
        for trial in self._rows:
            own = [trial.agent, trial.trial, trial.round, trial.state, trial.value, trial.failure]
            table.add_data(*own, *(trial.config.get(name) for name in names))
        if self._rows:
            run.log({"trials": table})
        self._run = None
        run.finish(exit_code=_ENDS.get(str(result.settings["runs"][0].get("status")), 0))

    def _run_of(self, study: StudyInfo) -> Any:
        if self._run is None:
            import wandb

            config = {"algorithm": study.algorithm, "study": study.study, "num_rounds": study.num_rounds}
            self._run = wandb.init(
                project=self._project,
                name=study.label,
                id=study.study,
                dir=self._directory,
                mode=self._mode,
                config=config | dict(study.options),
                resume="allow" if study.num_replayed and self._mode == "online" else None,
                reinit="create_new",
                settings=wandb.Settings(
                    silent=True, console="off", disable_git=True, x_disable_meta=True, x_disable_stats=True
                ),  # the study alone: neither the console nor the machine and the code of the server
            )
            for name in ("rounds/*", "agents/*"):
                self._run.define_metric(name, step_metric="round")
        return self._run
