"""XGBoost, bagging: every client adds trees, and all of them form the next model."""

import numpy as np
import xgboost
from flwr.app import ArrayRecord, ConfigRecord
from flwr.clientapp import ClientApp
from flwr.common.config import unflatten_dict
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedXgbBagging
from task import load_data, load_test, reply

from fbo_flower import Float, Int, SearchSpace, tune_federation  # tuned
from fbo_flower.federated import Judge, Run, tuned_run_config  # tuned

CONFIG = {
    "num-server-rounds": 8, "train-method": "bagging", "local-epochs": 1, "params.eta": 0.1,
    "params.max_depth": 8, "params.subsample": 1.0, "params.objective": "binary:logistic",
    "params.eval_metric": "logloss", "params.nthread": 1,
}  # fmt: skip
TREES = {"params.eta": Float(0.01, 1, log=True), "params.max_depth": Int(1, 8)}  # tuned
SPACE = SearchSpace({**TREES, "params.subsample": Float(0.3, 1), "local-epochs": Int(1, 3)})  # tuned
server = ServerApp()
client = ClientApp()  # own
client = ClientApp(mods=[tuned_run_config])  # tuned


def booster_of(config, arrays):
    booster = xgboost.Booster(params=unflatten_dict(config)["params"])
    booster.load_model(bytearray(arrays["0"].numpy().tobytes()))
    return booster


def loss(booster, x, y):
    found = booster.eval_set([(xgboost.DMatrix(x, label=y), "rows")])
    return float(found.split(":")[1])


@client.train()
def train(message, context):
    x, y, _, _ = load_data(context, "breast_cancer")
    params, number = unflatten_dict(context.run_config)["params"], context.run_config["local-epochs"]
    before = bytearray(message.content["arrays"]["0"].numpy().tobytes()) or None
    booster = xgboost.train(params, xgboost.DMatrix(x, label=y), number, xgb_model=before)
    if context.run_config["train-method"] == "bagging":
        booster = booster[booster.num_boosted_rounds() - number :]
    return reply(message, len(y), [np.frombuffer(booster.save_raw("json"), dtype=np.uint8)])


@client.evaluate()
def evaluate(message, context):
    _, _, x, y = load_data(context, "breast_cancer")
    booster = booster_of(context.run_config, message.content["arrays"])
    return reply(message, len(y), logloss=loss(booster, x, y))


@server.main()
def main(grid, context):
    arrays, rounds = ArrayRecord([np.zeros(0, dtype=np.uint8)]), context.run_config["num-server-rounds"]
    build, judge = lambda c: Run(FedXgbBagging(), arrays), Judge(minimize=True)  # tuned
    tuned = tune_federation(grid, build, SPACE, "logloss", rounds=8, budget=384, judge=judge)  # tuned
    strategy = FedXgbBagging()
    result = strategy.start(grid, arrays, rounds)  # own
    result = strategy.start(grid, arrays, rounds, train_config=ConfigRecord(tuned.best_config))  # tuned
    print(loss(booster_of(context.run_config, result.arrays), *load_test("breast_cancer")))
