"""A ServerApp with a `server_fn` that returns a tuning strategy."""

from flwr.app import Context
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import ServerApp

from fbo_flower.strategies import FTS
from fbo_flower.strategies.legacy import legacy_strategy


def server_fn(context: Context) -> ServerAppComponents:
    config = context.run_config

    def then(study):
        for agent, best in study.best.items():  # of agents whose operators disclose their values
            print(f"agent {agent}: {best['value']:.3f} with {best['config']}")
        if config["out"]:
            study.save(config["out"])

    tuning = FTS(num_agents=config["num-agents"], seed=0)
    strategy = legacy_strategy(tuning, config["num-rounds"], then=then)
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=0))


app = ServerApp(server_fn=server_fn)
