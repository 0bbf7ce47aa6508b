"""Report the error after each epoch, and prune trials that are behind."""

import optuna
from rows import num_trials, rows_of, seed
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

x, y = rows_of(load_digits, 400)
x_train, x_test, y_train, y_test = train_test_split(x / 16, y, random_state=0)


def objective(trial):
    alpha = trial.suggest_float("alpha", 1e-6, 1.0, log=True)
    rate = trial.suggest_float("eta0", 1e-4, 10.0, log=True)
    model = SGDClassifier(alpha=alpha, eta0=rate, learning_rate="constant", random_state=0)
    for epoch in range(20):
        model.partial_fit(x_train, y_train, classes=range(10))
        error = 1 - model.score(x_test, y_test)
        trial.report(error, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return error


sampler = optuna.samplers.TPESampler(seed=seed)
study = optuna.create_study(sampler=sampler, pruner=optuna.pruners.MedianPruner())
study.optimize(objective, n_trials=num_trials)
print(study.best_value)
