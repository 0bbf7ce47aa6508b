"""The title of a study's pictures: the problem, the metric, and how many agents have a value."""

from __future__ import annotations

import textwrap

import numpy as np

from fbo_flower.study.study import Study

_WIDTH = 88  # characters of a bold line over a picture


def study_title(study: Study) -> str:
    """Return problem or app, metric if known, number of agents, and how many of them have a value."""
    name, metric, agents = _name(study), metric_of(study), _num_agents(study)
    parts = [f"{name}: {metric}" if name and metric else name or metric, _agents(agents)]
    if len(agents) == 1 and not len(study.models):
        parts.append(_with_value(study, agents[0]))
    return _joined(parts)


def traffic_title(study: Study) -> str:
    """Return the title of the picture of what was sent."""
    return _joined([_name(study), f"{_agents(_num_agents(study))}: traffic and privacy".removeprefix(": ")])


def metric_of(study: Study) -> str:
    """Return the name of the metric if all runs have the same, else an empty text."""
    metrics = {str(run["metric"]) for run in study.settings["runs"] if run.get("metric")}
    return metrics.pop() if len(metrics) == 1 else ""


def agents_with_value(study: Study, algorithm: str) -> set[str]:
    """Return the agents that disclosed a finite value in this run, by a trial or a recommendation."""
    found: set[str] = set()
    for table in (study.trials, study.recommendations):
        rows = table.where(algorithm=algorithm)
        found |= set(rows["agent"][np.isfinite(rows["value"])].tolist())
    return found


def _joined(parts: list[str]) -> str:
    return textwrap.fill(", ".join(part for part in parts if part), _WIDTH)


def _name(study: Study) -> str:
    problems = dict.fromkeys(str(run["problem"]) for run in study.settings["runs"] if run.get("problem"))
    return ", ".join(problems) or str(study.settings.get("name", ""))


def _num_agents(study: Study) -> list[int]:
    runs = study.settings["runs"]
    return list(dict.fromkeys(int(run["num_agents"]) for run in runs if run.get("num_agents")))


def _agents(numbers: list[int]) -> str:
    if not numbers:
        return ""
    return f"{' or '.join(map(str, numbers))} agent{'' if numbers == [1] else 's'}"


def _with_value(study: Study, num_agents: int) -> str:
    counts = [len(agents_with_value(study, algorithm)) for algorithm in study.algorithms]
    if not any(counts):
        means = study.rounds["mean_incumbent"]
        return "" if np.isfinite(means).any() else "no value disclosed"
    low, high = min(counts), max(counts)
    if low == high == num_agents:
        return "all with a value" if num_agents > 1 else ""
    return f"{low if low == high else f'{low} to {high}'} with a value"
