"""A storage with a heartbeat: what a killed process has left is tried again. Two trials at once."""

import numpy as np
import optuna
from rows import num_trials, rows_of, seed, site
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

x, y = rows_of(load_iris, 90)


def objective(trial):
    c = trial.suggest_float("C", 1e-4, 1e4, log=True)
    model = SVC(C=c, gamma=trial.suggest_float("gamma", 1e-5, 1e2, log=True))
    return 0.01 * np.log10(1 + c) - cross_val_score(model, x, y, cv=3, scoring="accuracy").mean()


callback = optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=3)
heartbeat = {"heartbeat_interval": 1, "grace_period": 3, "heartbeat_stale_trial_callback": callback}
storage = optuna.storages.RDBStorage(f"sqlite:///study-{site}.db", **heartbeat)
sampler = optuna.samplers.TPESampler(seed=seed)
study = optuna.create_study(storage=storage, study_name="retried", load_if_exists=True, sampler=sampler)
study.optimize(objective, n_trials=num_trials, n_jobs=2)
print(study.best_value)
