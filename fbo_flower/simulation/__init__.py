"""Simulated federations on one machine: problems, engines, and `simulate`, which runs on them."""

from typing import TYPE_CHECKING

from fbo_flower.lazy import lazily

if TYPE_CHECKING:
    from fbo_flower.simulation.agents import problem_app
    from fbo_flower.simulation.durations import Clock, Duration, log_normal, slower
    from fbo_flower.simulation.engines import ENGINES
    from fbo_flower.simulation.grids import FIRST_NODE, Fault, InProcessGrid
    from fbo_flower.simulation.partitioners import by_group, train_validation
    from fbo_flower.simulation.problems import PROBLEMS, Problem, make_problem
    from fbo_flower.simulation.runner import annotate, observations, prior_study, simulate
    from fbo_flower.simulation.settings import Agents, Async, RayEngine, Start, Sync
    from fbo_flower.study.directory import Keep

_HOMES = {
    "problem_app": "agents", "annotate": "runner", "Duration": "durations", "log_normal": "durations",
    "slower": "durations", "ENGINES": "engines", "FIRST_NODE": "grids", "Fault": "grids",
    "InProcessGrid": "grids", "by_group": "partitioners", "train_validation": "partitioners",
    "PROBLEMS": "problems", "Problem": "problems", "make_problem": "problems", "observations": "runner",
    "prior_study": "runner", "simulate": "runner", "Agents": "settings", "Async": "settings",
    "Clock": "durations",
    "Keep": "settings", "RayEngine": "settings", "Start": "settings", "Sync": "settings",
}  # fmt: skip
__all__ = [
    "ENGINES",
    "FIRST_NODE",
    "PROBLEMS",
    "Agents",
    "Async",
    "Clock",
    "Duration",
    "Fault",
    "InProcessGrid",
    "Keep",
    "Problem",
    "RayEngine",
    "Start",
    "Sync",
    "annotate",
    "by_group",
    "log_normal",
    "make_problem",
    "observations",
    "prior_study",
    "problem_app",
    "simulate",
    "slower",
    "train_validation",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(__name__, _HOMES)
