"""Several processes share a study in SQLite; they stop together."""

import optuna
from optuna.study import MaxTrialsCallback
from optuna.trial import TrialState
from rows import num_trials, rows_of, seed, site
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import scale

x, y = rows_of(load_breast_cancer, 200)


def objective(trial):
    c, ratio = trial.suggest_float("C", 1e-4, 1e3, log=True), trial.suggest_float("l1_ratio", 0.0, 1.0)
    model = LogisticRegression(C=c, l1_ratio=ratio, solver="saga", max_iter=100)
    return -cross_val_score(model, scale(x), y, cv=3, scoring="neg_log_loss").mean()


sampler = optuna.samplers.TPESampler(seed=seed)
study = optuna.create_study(
    storage=f"sqlite:///study-{site}.db", study_name="shared", load_if_exists=True, sampler=sampler
)
enough = MaxTrialsCallback(num_trials, states=(TrialState.COMPLETE,))
study.optimize(objective, n_trials=num_trials, callbacks=[enough])
print(study.best_value)
