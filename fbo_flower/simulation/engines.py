"""The engines of `simulate`: three Flower grids on which the same strategy and ClientApp run unchanged.

- `inline`: in this process, one agent after the other;
- `ray`: on Ray workers that take messages in batches, one per CPU, or on a Ray cluster;
- `flower`: Flower's own simulation engine, on Ray.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.common.logger import LOGGER_NAME, ConsoleHandler
from flwr.serverapp import Grid, ServerApp

from fbo_flower.algorithms.options import check_choice
from fbo_flower.errors import FBOError
from fbo_flower.simulation.grids import InProcessGrid, rare_collections
from fbo_flower.simulation.ray_grid import RayGrid
from fbo_flower.simulation.ray_workers import check_picklable, import_ray
from fbo_flower.simulation.settings import RayEngine
from fbo_flower.strategies import TuningStrategy
from fbo_flower.strategies.exchange import Stopped
from fbo_flower.strategies.settings import TuningResult

ENGINES = ("ray", "inline", "flower")
OnGrid = Callable[[Grid], TuningResult]


def engine_name(engine: str | RayEngine) -> str:
    """Return the name of an engine; ConfigError if there is no such engine."""
    if isinstance(engine, RayEngine):
        return "ray"
    check_choice("engine", engine, ENGINES)
    return engine


def run_on_engine(
    engine: str | RayEngine, strategy: TuningStrategy, start: OnGrid, app: ClientApp, num_agents: int
) -> None:
    """Call `start` with the engine's grid and wait until the strategy has ended.

    Parameters
    ----------
    strategy : the strategy that `start` runs; Ctrl-C stops it
    start : runs the strategy on a grid
    app : the ClientApp of every agent
    """
    name = engine_name(engine)
    for handler in logging.getLogger(LOGGER_NAME).handlers:  # Flower colours files and pipes, too
        if isinstance(handler, ConsoleHandler) and not handler.stream.isatty():
            handler.colored = False
    if name == "inline":
        with rare_collections():
            start(InProcessGrid(app, num_agents))
    elif name == "ray":
        settings = asdict(engine if isinstance(engine, RayEngine) else RayEngine())
        with RayGrid(app, num_agents, **settings) as grid, rare_collections():
            start(grid)
    else:
        _run_flower(strategy, start, app, num_agents)


def _run_flower(strategy: TuningStrategy, start: OnGrid, app: ClientApp, num_agents: int) -> None:
    """Run on Flower's simulation engine, which starts the ServerApp in a separate thread."""
    import_ray("flower")  # without Ray, Flower would end this process
    from flwr.simulation import run_simulation

    check_picklable(app)
    server = ServerApp()
    failure: list[BaseException] = []
    idle = threading.Event()
    idle.set()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        idle.clear()
        try:
            start(grid)
        except (FBOError, Stopped) as error:  # raised again below: Flower would print its own traceback
            failure.append(error)
        finally:
            idle.set()

    resources: Any = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"log_to_driver": False},
    }
    with _interruptible(strategy) as interrupted:
        try:
            run_simulation(server, app, num_agents, backend_config=resources)
        except BaseException:
            strategy.stop()
            idle.wait(timeout=10.0)  # the strategy saves its study before it ends
            raise
    if interrupted.is_set():
        raise KeyboardInterrupt
    if failure:
        raise failure[0]


@contextmanager
def _interruptible(strategy: TuningStrategy) -> Iterator[threading.Event]:
    """Let the first Ctrl-C stop the strategy, so that the engine ends in order; a second Ctrl-C kills it.

    Otherwise Flower's engine would wait until the ServerApp has finished all its rounds. The event says
    whether Ctrl-C was pressed.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted  # Python delivers signals to the main thread only
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        interrupted.set()
        strategy.stop()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
