"""Messages of the app's own: a query for means and scales, and training under the name "sgd"."""

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from task import accuracy, fit, load_data, load_test, reply

from fbo_flower import Float, Int, SearchSpace, tune_federation  # tuned
from fbo_flower.federated import Run  # tuned

CONFIG = {"num-server-rounds": 8, "lr": 0.1, "local-epochs": 1}
SPACE = SearchSpace({"lr": Float(1e-3, 10, log=True), "local-epochs": Int(1, 5)})  # tuned
client, server = ClientApp(), ServerApp()


@client.query()
def sums(message, context):
    x = load_data(context, "breast_cancer")[0]
    found = {"rows": len(x), "sums": x.sum(axis=0).tolist(), "squares": (x**2).sum(axis=0).tolist()}
    return Message(RecordDict({"sums": MetricRecord(found)}), reply_to=message)


def scaled(x, config):
    return (x - config["mean"]) / config["scale"]


@client.train("sgd")
def train(message, context):
    x, y, _, _ = load_data(context, "breast_cancer")
    config, (weights,) = message.content["config"], message.content["arrays"].to_numpy_ndarrays()
    weights = fit(weights, scaled(x, config), y, config["lr"], config["local-epochs"])
    return reply(message, len(y), [weights])


@client.evaluate()
def evaluate(message, context):
    _, _, x, y = load_data(context, "breast_cancer")
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    return reply(message, len(y), accuracy=accuracy(weights, scaled(x, message.content["config"]), y))


class Sgd(FedAvg):
    def configure_train(self, server_round, arrays, config, grid):
        for message in super().configure_train(server_round, arrays, config, grid):
            message.metadata.message_type = "train.sgd"
            yield message


@server.main()
def main(grid, context):
    queries = [Message(RecordDict(), node, "query") for node in grid.get_node_ids()]
    found = [reply.content["sums"] for reply in grid.send_and_receive(queries)]
    rows, sums, squares = (sum(np.array(one[name]) for one in found) for name in ("rows", "sums", "squares"))
    mean, scale = sums / rows, np.sqrt(squares / rows - (sums / rows) ** 2)
    scales, arrays = {"mean": mean.tolist(), "scale": scale.tolist()}, ArrayRecord([np.zeros((31, 2))])
    build = lambda c: Run(Sgd(), arrays, train_config=scales, evaluate_config=scales)  # noqa: E731  # tuned
    tuned = tune_federation(grid, build, SPACE, rounds=8, budget=384)  # tuned
    context.run_config.update(tuned.best_config)  # tuned
    own = {name: context.run_config[name] for name in ("lr", "local-epochs")}
    config, rounds = ConfigRecord({**scales, **own}), context.run_config["num-server-rounds"]
    result = Sgd().start(grid, arrays, rounds, train_config=config, evaluate_config=ConfigRecord(scales))
    x, y = load_test("breast_cancer")
    print(accuracy(result.arrays.to_numpy_ndarrays()[0], scaled(x, scales), y))
