"""Choose a classifier and its parameters: a space with branches."""

import optuna
from rows import num_trials, rows_of, seed
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

x, y = rows_of(load_digits, 240)


def objective(trial):
    kind = trial.suggest_categorical("classifier", ["SVC", "RandomForest"])
    if kind == "SVC":
        c = trial.suggest_float("svc_c", 1e-4, 1e4, log=True)
        model = SVC(C=c, gamma=trial.suggest_float("svc_gamma", 1e-6, 1.0, log=True))
    else:
        depth = trial.suggest_int("rf_max_depth", 2, 32, log=True)
        model = RandomForestClassifier(10, max_depth=depth, random_state=0)
    return 1 - cross_val_score(model, x, y, cv=3).mean()


sampler = optuna.samplers.TPESampler(seed=seed)
study = optuna.create_study(sampler=sampler)
study.optimize(objective, n_trials=num_trials)
print(study.best_value)
