"""Arguments of `simulate` whose groups are given flat: `label="a"` stands for `keep=Keep(label="a")`."""

from dataclasses import fields, replace

from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.registry import RECOMMENDED
from fbo_flower.simulation import Agents, Async, Clock, Keep, Start, Sync

GROUPS = {"agents": Agents, "rounds": Sync, "start": Start, "keep": Keep}


def grouped(*, mode="sync", durations=None, exchange_seconds=0.0, **flat):
    """Return the arguments, for `simulate(objective, **grouped(...))`.

    Parameters
    ----------
    mode : "sync" or "async"
    durations, exchange_seconds : of a clock, if there are durations
    flat : arguments of `simulate`, fields of its groups, `options` of an algorithm that is given by name, and
        `on_round`, a function for its callbacks
    """
    options = flat.pop("options", None)
    algorithm = flat.get("algorithm") or RECOMMENDED
    if options is not None and isinstance(algorithm, str):
        algorithm = make_algorithm(algorithm, options)
    flat["algorithm"] = algorithm
    if "on_round" in flat:
        flat["callbacks"] = [*flat.get("callbacks", ()), flat.pop("on_round")]
    if mode == "async":
        flat["rounds"] = Async()
    if durations is not None:
        flat["clock"] = Clock(durations, exchange_seconds)
    for name, kind in GROUPS.items():
        group = flat.pop(name, None)
        known = {field.name for field in fields(type(group) if isinstance(group, Async) else kind)}
        own = {key: flat.pop(key) for key in known & flat.keys() if key != name}
        if name == "agents" and not isinstance(group, Agents):
            group = Agents(group) if own else group
        if own:
            group = replace(group or kind(), **own)
        if group is not None:
            flat[name] = group
    return flat
