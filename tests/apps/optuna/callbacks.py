"""User attributes, callbacks, trials that fail, and an early end."""

import optuna
from rows import num_trials, rows_of, seed
from sklearn.datasets import load_diabetes
from sklearn.linear_model import ElasticNet
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import PolynomialFeatures

x, y = rows_of(load_diabetes, 200)


def objective(trial):
    degree = trial.suggest_int("degree", 1, 3)
    alpha = trial.suggest_float("alpha", 1e-5, 10.0, log=True)
    ratio = trial.suggest_float("l1_ratio", 0.0, 1.0)
    if degree == 3 and alpha < 1e-4:
        raise MemoryError("too many features")
    features = PolynomialFeatures(degree).fit_transform(x)
    trial.set_user_attr("shape", list(features.shape))
    model = ElasticNet(alpha=alpha, l1_ratio=ratio, max_iter=300)
    return 1 - cross_val_score(model, features, y, cv=3, scoring="r2").mean()


def stop_when_good(study, trial):
    if trial.state == optuna.trial.TrialState.COMPLETE and study.best_value < 0.1:
        study.stop()


sampler = optuna.samplers.TPESampler(seed=seed)
study = optuna.create_study(sampler=sampler)
study.set_user_attr("data", "diabetes")
study.optimize(objective, n_trials=num_trials, callbacks=[stop_when_good], catch=(MemoryError,))
print(study.best_value)
