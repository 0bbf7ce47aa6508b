"""The most accurate tree with at most six leaves."""

import optuna
from rows import num_trials, rows_of, seed
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score
from sklearn.tree import DecisionTreeClassifier

x, y = rows_of(load_wine, 110)


def objective(trial):
    model = DecisionTreeClassifier(
        max_depth=trial.suggest_int("max_depth", 1, 12),
        max_features=trial.suggest_float("max_features", 0.1, 1.0),
        min_impurity_decrease=trial.suggest_float("min_impurity_decrease", 1e-5, 0.3, log=True),
        random_state=0,
    )
    trial.set_user_attr("leaves", float(model.fit(x, y).get_n_leaves()))
    return 1 - cross_val_score(model, x, y, cv=5).mean()


def constraints(trial):
    return [trial.user_attrs["leaves"] - 6]


sampler = optuna.samplers.TPESampler(seed=seed, constraints_func=constraints)
study = optuna.create_study(sampler=sampler)
study.optimize(objective, n_trials=num_trials)
print(study.best_value)
