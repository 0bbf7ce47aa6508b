"""PyTorch; the rate travels in the config, the rest is in the run config, as in Flower's quickstart."""

import torch
from flwr.app import ArrayRecord, ConfigRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from task import load_data, load_test, reply

from fbo_flower import Float, Int, SearchSpace, tune_federation  # tuned
from fbo_flower.federated import Run, tuned_run_config  # tuned

CONFIG = {"num-server-rounds": 8, "lr": 0.1, "local-epochs": 1, "batch-size": 32}
SIZES = {"local-epochs": Int(1, 5), "batch-size": Int(8, 64, log=True)}  # tuned
SPACE = SearchSpace({"lr": Float(1e-3, 3, log=True), **SIZES})  # tuned
server = ServerApp()
client = ClientApp()  # own
client = ClientApp(mods=[tuned_run_config])  # tuned


def net(arrays=None):
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    if arrays is not None:
        model.load_state_dict(arrays.to_torch_state_dict())
    return model


def accuracy(model, x, y):
    found = model(torch.tensor(x, dtype=torch.float32)).argmax(dim=1)
    return float((found == torch.tensor(y)).float().mean())


@client.train()
def train(message, context):
    x, y, _, _ = load_data(context)
    x, y, model = torch.tensor(x, dtype=torch.float32), torch.tensor(y), net(message.content["arrays"])
    optimizer = torch.optim.SGD(model.parameters(), lr=message.content["config"]["lr"])
    for _ in range(context.run_config["local-epochs"]):
        for rows in torch.randperm(len(y)).split(context.run_config["batch-size"]):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return reply(message, len(y), model.state_dict())


@client.evaluate()
def evaluate(message, context):
    _, _, x, y = load_data(context)
    return reply(message, len(y), accuracy=accuracy(net(message.content["arrays"]), x, y))


@server.main()
def main(grid, context):
    arrays, config = ArrayRecord(net().state_dict()), {"lr": context.run_config["lr"]}
    tuned = tune_federation(grid, lambda c: Run(FedAvg(), arrays), SPACE, rounds=8, budget=384)  # tuned
    config = tuned.best_config  # tuned
    rounds = context.run_config["num-server-rounds"]
    result = FedAvg().start(grid, arrays, rounds, train_config=ConfigRecord(config))
    print(accuracy(net(result.arrays), *load_test()))
