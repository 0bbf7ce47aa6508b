"""scikit-learn's SGDClassifier; clients read the run config."""

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from sklearn.linear_model import SGDClassifier
from task import load_data, load_test, reply

from fbo_flower import Categorical, Float, Int, SearchSpace, tune_federation  # tuned
from fbo_flower.federated import Run, tuned_run_config  # tuned

CONFIG = {"num-server-rounds": 8, "penalty": "l2", "alpha": 1e-4, "eta0": 0.01, "local-epochs": 1}
RATES = {"alpha": Float(1e-6, 0.1, log=True), "eta0": Float(1e-4, 1, log=True)}  # tuned
SPACE = SearchSpace({**RATES, "penalty": Categorical(["l1", "l2"]), "local-epochs": Int(1, 5)})  # tuned
server = ServerApp()
client = ClientApp()  # own
client = ClientApp(mods=[tuned_run_config])  # tuned


def model_of(config, arrays):
    given = {name: config[name] for name in ("penalty", "alpha", "eta0")}
    model = SGDClassifier(loss="log_loss", learning_rate="constant", **given)
    model.classes_ = np.arange(10)
    model.coef_, model.intercept_ = arrays.to_numpy_ndarrays()
    return model


@client.train()
def train(message, context):
    x, y, _, _ = load_data(context)
    model = model_of(context.run_config, message.content["arrays"])
    for _ in range(context.run_config["local-epochs"]):
        model.partial_fit(x, y)
    return reply(message, len(y), [model.coef_, model.intercept_])


@client.evaluate()
def evaluate(message, context):
    _, _, x, y = load_data(context)
    model = model_of(context.run_config, message.content["arrays"])
    return reply(message, len(y), accuracy=float(model.score(x, y)))


@server.main()
def main(grid, context):
    arrays, rounds = ArrayRecord([np.zeros((10, 64)), np.zeros(10)]), context.run_config["num-server-rounds"]
    tuned = tune_federation(grid, lambda c: Run(FedAvg(), arrays), SPACE, rounds=8, budget=384)  # tuned
    result = FedAvg().start(grid, arrays, rounds)  # own
    result = FedAvg().start(grid, arrays, rounds, train_config=ConfigRecord(tuned.best_config))  # tuned
    print(model_of(context.run_config, result.arrays).score(*load_test()))
