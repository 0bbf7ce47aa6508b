"""LightGBM with steps, logarithms and whole numbers."""

import lightgbm
import optuna
from rows import num_trials, rows_of, seed
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

x, y = rows_of(load_digits, 300)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.4, random_state=0)


def objective(trial):
    model = lightgbm.LGBMClassifier(
        n_estimators=10,
        num_leaves=trial.suggest_int("num_leaves", 4, 64, step=4),
        learning_rate=trial.suggest_float("learning_rate", 1e-3, 1.0, log=True),
        subsample=trial.suggest_float("subsample", 0.1, 1.0, step=0.1),
        subsample_freq=1,
        min_child_samples=trial.suggest_int("min_child_samples", 1, 60, log=True),
        n_jobs=1,
        random_state=0,
        verbosity=-1,
    )
    return 1 - model.fit(x_train, y_train).score(x_test, y_test)


sampler = optuna.samplers.TPESampler(seed=seed)
study = optuna.create_study(sampler=sampler)
study.optimize(objective, n_trials=num_trials)
print(study.best_value)
