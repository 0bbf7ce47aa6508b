from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, mean_absolute_error, mean_squared_error
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.clients.site import SCORERS, Bag, SiteData, SiteObjective, splits
from fbo_flower.errors import ConfigError, ObjectiveError
from fbo_flower.numerics.seeding import generator


def context(seed=0):
    return ObjectiveContext("site", 0, 0, 1, generator(seed, "evaluation"))


def rows(n, seed):
    rng = generator(seed, "rows")
    x = rng.normal(size=(n, 3))
    return Bag(x, (x[:, 0] + rng.normal(size=n) > 0.3).astype(int))


DATA = SiteData(rows(80, 0), rows(20, 1))


def logistic(config):
    return make_pipeline(StandardScaler(), LogisticRegression(C=config["C"]))


def site(make_model=logistic, data=DATA, **options):
    return SiteObjective(make_model, lambda _: data, **options)


# training


def test_training_is_scikit_learns_cross_validation_over_seeded_folds_and_a_fit_on_the_whole_inbag():
    x, y = DATA.inbag
    expected = 1 - cross_val_score(logistic({"C": 0.3}), x, y, cv=splits(y, 10, 0)).mean()
    for seed in (0, 1):  # of the trial, on which the folds do not depend
        loss, num_rows, model, _ = site().train({"C": 0.3}, context(seed))
        assert loss == pytest.approx(expected, abs=1e-12)
        assert num_rows == 80
    assert np.array_equal(model.predict_proba(x), logistic({"C": 0.3}).fit(x, y).predict_proba(x))
    assert site()({"C": 0.3}, context()) == -loss, "as an objective"
    assert splits(y, 10, 0)[0][1].tolist() != splits(y, 10, 1)[0][1].tolist()


def test_what_fit_returns_is_the_model():
    @dataclass
    class Recipe:
        label: int

        def fit(self, x, y):
            return DummyClassifier(strategy="constant", constant=self.label).fit(x, y)

    trained = site(lambda config: Recipe(1)).train({}, context())
    assert isinstance(trained.model, DummyClassifier)
    assert trained.loss == pytest.approx(np.mean(DATA.inbag.y == 0))


def test_data_frames_are_split_by_their_rows():
    pandas = pytest.importorskip("pandas")
    frame = SiteData(
        *(Bag(pandas.DataFrame(bag.x, index=np.arange(len(bag.y))[::-1]), bag.y) for bag in DATA)
    )
    assert site(data=frame).train({"C": 1.0}, context()).loss == site().train({"C": 1.0}, context()).loss


# judging


@pytest.mark.parametrize(("name", "count"), [("inbag", 80), ("outbag", 20), ("all", 100)])
def test_a_constant_model_is_judged_by_the_share_of_the_other_class(name, count):
    y = {"inbag": DATA.inbag.y, "outbag": DATA.outbag.y, "all": np.concatenate([DATA.inbag.y, DATA.outbag.y])}
    judged = site().judge(lambda x: np.zeros(len(x), dtype=int), name, context())
    assert judged.num_rows == count
    assert judged.loss == pytest.approx(np.mean(y[name] == 1))
    assert site().is_rate
    assert not site(scorer="balanced-error").is_rate


def test_balanced_error_and_regression_losses_are_scikit_learns():
    y, guess = rows(60, 2).y, rows(60, 3).y
    assert SCORERS["balanced-error"](y, guess) == pytest.approx(1 - balanced_accuracy_score(y, guess))
    real, estimate = rows(60, 2).x[:, 0], rows(60, 3).x[:, 0]
    assert SCORERS["squared-error"](real, estimate) == pytest.approx(mean_squared_error(real, estimate))
    assert SCORERS["absolute-error"](real, estimate) == pytest.approx(mean_absolute_error(real, estimate))


# folds


@given(
    counts=st.lists(st.integers(2, 30), min_size=2, max_size=4),
    num_folds=st.integers(2, 12),
    seed=st.integers(0, 99),
)
@settings(deadline=None)
def test_folds_cover_every_row_once_and_share_each_class_evenly(counts, num_folds, seed):
    y = generator(seed, "y").permutation(np.repeat(np.arange(len(counts)), counts))
    folds = splits(y, num_folds, seed)
    assert len(folds) == min(num_folds, *counts)
    assert np.array_equal(np.sort(np.concatenate([test for _, test in folds])), np.arange(len(y)))
    for train, test in folds:
        assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(y)))
    shares = np.array([np.bincount(y[test], minlength=len(counts)) for _, test in folds])
    assert (np.ptp(shares, axis=0) <= 1).all()
    assert np.ptp(shares.sum(axis=1)) <= 1
    assert np.array_equal(splits(y, num_folds, seed)[0][1], folds[0][1])


# failures


def raising(*_):
    raise KeyError("nothing here")


def rows_of(count, targets):
    return site(data=SiteData(Bag(DATA.inbag.x[:count], DATA.inbag.y[:targets]), DATA.outbag))


def judging(predict, rows="outbag"):
    return lambda: site().judge(predict, rows, context())


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        (site(raising), "fit: KeyError: 'nothing here'"),
        (SiteObjective(logistic, raising), "load_data: KeyError"),
        (SiteObjective(logistic, lambda _: 3), "load_data: TypeError"),
        (site(scorer=raising), "scorer: KeyError"),
        (site(scorer=lambda a, b: float("nan")), "scorer: expected a finite loss, got nan"),
        (rows_of(80, 3), r"inbag: .* got 80 rows"),
        (rows_of(0, 0), r"inbag: .* got 0 rows"),
        (judging(raising), "predict: KeyError"),
        (judging(lambda x: np.zeros((len(x), 2))), r"expected \(20,\) predictions, got"),
        (judging(raising, "lockbox"), "expected one of inbag, outbag, all, got 'lockbox'"),
        (lambda: splits([0, 0, 0, 0], 10, 0), "expected two classes or more of two rows or more"),
        (lambda: splits(["a", "b", "a"], 10, 0), "expected two classes or more of two rows or more"),
    ],
)
def test_whatever_fails_at_a_site_is_an_error_of_the_objective(fails, message):
    with pytest.raises(ObjectiveError, match=message):
        fails.train({"C": 1.0}, context()) if isinstance(fails, SiteObjective) else fails()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scorer": "accuracy"}, "scorer: expected one of misclassification, .*, got 'accuracy'"),
        ({"scorer": 3}, "scorer: expected a name or a function, got 3"),
        ({"format": "onnx"}, "export: expected a function"),
        ({"export": lambda model, x: b""}, "export: expected with another format"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        site(**options)
