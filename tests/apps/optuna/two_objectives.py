"""A tree that is accurate and small."""

import optuna
from rows import num_trials, rows_of, seed
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import cross_val_score
from sklearn.tree import DecisionTreeClassifier

x, y = rows_of(load_breast_cancer, 200)


def objective(trial):
    model = DecisionTreeClassifier(
        max_depth=trial.suggest_int("max_depth", 1, 12),
        ccp_alpha=trial.suggest_float("ccp_alpha", 1e-5, 0.3, log=True),
        min_samples_leaf=trial.suggest_int("min_samples_leaf", 1, 40, log=True),
        random_state=0,
    )
    error = 1 - cross_val_score(model, x, y, cv=5).mean()
    return error, float(model.fit(x, y).get_n_leaves())


sampler = optuna.samplers.TPESampler(seed=seed)
study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
study.optimize(objective, n_trials=num_trials)
print(min(error + leaves / 100 for error, leaves in (trial.values for trial in study.best_trials)))
