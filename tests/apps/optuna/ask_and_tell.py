"""An ask-and-tell loop with a failed trial."""

import optuna
from rows import num_trials, rows_of, seed
from sklearn.datasets import load_diabetes
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

x, y = rows_of(load_diabetes, 200)

sampler = optuna.samplers.TPESampler(seed=seed)
study = optuna.create_study(sampler=sampler)
for number in range(num_trials):
    trial = study.ask()
    c, epsilon = trial.suggest_float("C", 1e-2, 1e4, log=True), trial.suggest_float("epsilon", 0.01, 50)
    model = SVR(C=c, epsilon=epsilon, gamma=trial.suggest_float("gamma", 1e-5, 1.0, log=True))
    if number == 5:  # the machine was needed for something else
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        continue
    scores = cross_val_score(make_pipeline(StandardScaler(), model), x, y, cv=3, scoring="r2")
    study.tell(trial, 1 - scores.mean())
print(study.best_value)
