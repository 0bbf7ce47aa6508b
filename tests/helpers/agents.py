"""One agent and the messages that it gets, without a server."""

from flwr.app import Context, RecordDict

from fbo_flower import wire
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.space import Float, SearchSpace

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})


class Objective:
    """A hill, or a function of the configuration and the context; notes its trials."""

    def __init__(self, function=None):
        self.trials: list[int] = []
        self.function = function

    def __call__(self, config, context):
        self.trials.append(context.trial)
        if self.function is not None:
            return self.function(config, context)
        return -((config["x"] - 0.3) ** 2) - config["y"] ** 2

    @property
    def calls(self):
        return len(self.trials)


def node(journal=None, state=None, **config):
    """Return the context of agent 3, with its operator's settings."""
    kept = {} if journal is None else {"journal": str(journal)}
    return Context(
        1, 5, {"partition-id": 3, "num-partitions": 9, **kept, **config}, state or RecordDict(), {}
    )


def packed(algorithm, task, **envelope):
    """Return a task as it travels to agent 3 in study "s"; `envelope` holds changes."""
    named = {"study": "s", "agent": "3", "space": SPACE.digest, "algorithm": algorithm.name}
    named["options"] = canonical_json(algorithm.options())
    return wire.encode_task(task, wire.Envelope(**{**named, **envelope}))


def task(trial=0, num_trials=3, phase=Phase.TRAIN, **given):
    """Return a task of the round after `trial`."""
    return Task(phase, 1 + trial, trial, num_trials, **given)
