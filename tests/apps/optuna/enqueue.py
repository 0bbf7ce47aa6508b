"""Begin with the defaults and with what a colleague has said."""

import optuna
from rows import num_trials, rows_of, seed
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

x, y = rows_of(load_wine, 100)


def objective(trial):
    model = KNeighborsClassifier(
        n_neighbors=trial.suggest_int("n_neighbors", 1, 40, log=True),
        weights=trial.suggest_categorical("weights", ["uniform", "distance"]),
        p=trial.suggest_float("p", 1.0, 5.0),
    )
    noise = trial.suggest_float("columns", 0.2, 1.0)
    kept = x[:, : max(1, round(noise * x.shape[1]))]
    return 1 - cross_val_score(make_pipeline(StandardScaler(), model), kept, y, cv=5).mean()


sampler = optuna.samplers.TPESampler(seed=seed)
study = optuna.create_study(sampler=sampler)
study.enqueue_trial({"n_neighbors": 5, "weights": "uniform", "p": 2.0, "columns": 1.0})
study.enqueue_trial({"n_neighbors": 1})
study.optimize(objective, n_trials=num_trials + 2)
print(study.best_value)
