"""XGBoost, cyclic: one client after the other adds trees to the model."""

import numpy as np
import xgboost_bagging
from flwr.app import ArrayRecord, ConfigRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedXgbCyclic
from task import load_test

from fbo_flower import Float, Int, SearchSpace, tune_federation  # tuned
from fbo_flower.federated import Judge, Run, tuned_run_config  # tuned

CONFIG = {**xgboost_bagging.CONFIG, "num-server-rounds": 24, "train-method": "cyclic"}
TREES = {"params.eta": Float(0.01, 1, log=True), "params.max_depth": Int(1, 8)}  # tuned
SPACE = SearchSpace({**TREES, "params.subsample": Float(0.3, 1), "local-epochs": Int(1, 3)})  # tuned
client = ClientApp()  # own
client = ClientApp(mods=[tuned_run_config])  # tuned
client.train()(xgboost_bagging.train)
client.evaluate()(xgboost_bagging.evaluate)
server = ServerApp()


@server.main()
def main(grid, context):
    arrays, rounds = ArrayRecord([np.zeros(0, dtype=np.uint8)]), context.run_config["num-server-rounds"]
    build, judge = lambda c: Run(FedXgbCyclic(), arrays), Judge(minimize=True)  # tuned
    tuned = tune_federation(grid, build, SPACE, "logloss", rounds=24, budget=384, judge=judge)  # tuned
    strategy = FedXgbCyclic()
    result = strategy.start(grid, arrays, rounds)  # own
    result = strategy.start(grid, arrays, rounds, train_config=ConfigRecord(tuned.best_config))  # tuned
    booster = xgboost_bagging.booster_of(context.run_config, result.arrays)
    print(xgboost_bagging.loss(booster, *load_test("breast_cancer")))
