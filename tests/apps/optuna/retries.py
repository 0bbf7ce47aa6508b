"""A storage with a heartbeat: what a killed process has left is tried again. Two trials at once."""

import sys

import numpy as np
import optuna
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

site, seed, num_trials = map(int, sys.argv[1:4])
rows = np.random.default_rng(site).permutation(150)[:90]
x, y = (part[rows] for part in load_iris(return_X_y=True))


def objective(trial):
    c, gamma = (
        trial.suggest_float("C", 1e-4, 1e4, log=True),
        trial.suggest_float("gamma", 1e-5, 1e2, log=True),
    )
    return -cross_val_score(SVC(C=c, gamma=gamma), x, y, cv=3, scoring="accuracy").mean() + 0.01 * np.log10(
        1 + c
    )


callback = optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=3)
storage = optuna.storages.RDBStorage(
    f"sqlite:///study-{site}.db",
    heartbeat_interval=1,
    grace_period=3,
    heartbeat_stale_trial_callback=callback,
)
sampler = optuna.samplers.TPESampler(seed=seed)
study = optuna.create_study(storage=storage, study_name="retried", load_if_exists=True, sampler=sampler)
study.optimize(objective, n_trials=num_trials, n_jobs=2)
print(study.best_value)
