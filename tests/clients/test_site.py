"""A site trains, packs and judges real models, as scikit-learn does."""

import copy
import re
from pathlib import Path

import numpy as np
import pytest
from crafted_models import X, Y, tree
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, mean_absolute_error, mean_squared_error
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from fbo_flower.clients import model_site
from fbo_flower.clients.model_site import ModelSite, SiteOptions
from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.clients.site import SCORERS, Bag, SiteData, SiteObjective, splits
from fbo_flower.errors import ConfigError, ModelError, ObjectiveError
from fbo_flower.models import pack
from fbo_flower.models.jail import Confinement
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
    class Recipe:
        def fit(self, x, y):
            return DummyClassifier(strategy="constant", constant=1).fit(x, y)

    trained = site(lambda config: Recipe()).train({}, context())
    assert isinstance(trained.model, DummyClassifier)
    assert trained.loss == pytest.approx(np.mean(DATA.inbag.y == 0))


# judging


def test_a_constant_model_is_judged_by_the_share_of_the_other_class():
    y = {"inbag": DATA.inbag.y, "outbag": DATA.outbag.y, "all": np.concatenate([DATA.inbag.y, DATA.outbag.y])}
    for name, labels in y.items():
        judged = site().judge(lambda x: np.zeros(len(x), dtype=int), name, context())
        assert judged == (pytest.approx(np.mean(labels == 1)), len(labels))
    assert site().is_rate
    assert not site(scorer="balanced-error").is_rate


def test_balanced_error_and_regression_losses_are_scikit_learns():
    y, guess = rows(60, 2).y, rows(60, 3).y
    assert SCORERS["balanced-error"](y, guess) == pytest.approx(1 - balanced_accuracy_score(y, guess))
    real, estimate = rows(60, 2).x[:, 0], rows(60, 3).x[:, 0]
    assert SCORERS["squared-error"](real, estimate) == pytest.approx(mean_squared_error(real, estimate))
    assert SCORERS["absolute-error"](real, estimate) == pytest.approx(mean_absolute_error(real, estimate))


# folds


@pytest.mark.parametrize(
    ("counts", "num_folds", "seed"), [([5, 30], 10, 0), ([2, 9, 17], 3, 1), ([12, 12], 12, 2)]
)
def test_folds_cover_every_row_once_and_share_each_class_evenly(counts, num_folds, seed):
    y = generator(seed, "y").permutation(np.repeat(np.arange(len(counts)), counts))
    folds = splits(y, num_folds, seed)
    assert len(folds) == min(num_folds, *counts)
    for train, test in [(np.array([], int), np.concatenate([test for _, test in folds])), *folds]:
        assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(y)))
    shares = np.array([np.bincount(y[test], minlength=len(counts)) for _, test in folds])
    assert (np.ptp(shares, axis=0) <= 1).all()
    assert np.ptp(shares.sum(axis=1)) <= 1


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
    "options", [{"scorer": "accuracy"}, {"scorer": 3}, {"format": "onnx"}, {"export": lambda model, x: b""}]
)
def test_options_that_cannot_be_used_are_refused(options):
    with pytest.raises(ConfigError, match=rf"({'|'.join(options)}|export): expected"):
        site(**options)


# models, which are packed and judged in a jail

TREES = SiteData(Bag(X[:90], Y[:90]), Bag(X[90:], Y[90:]))


def model_site_of(
    make_model=lambda config: DecisionTreeClassifier(max_depth=2), data=TREES, *, export=None, format="skops",
    **options
):  # fmt: skip
    objective = SiteObjective(make_model, lambda _: data, folds=3, format=format, export=export)
    return ModelSite(objective, SiteOptions(**{"in_process": True, **options}))


def test_a_site_that_requires_confinement_judges_nothing_where_something_is_not_denied(monkeypatch):
    monkeypatch.setattr(model_site, "confinement", lambda: Confinement(("reading",), ("landlock",)))
    site = model_site_of(require_confinement=True, in_process=False)
    with pytest.raises(ModelError, match="network, writing, processes, as require_confinement"):
        site.judge(pack(tree()), "outbag", context())
    assert model_site_of(in_process=False).judge(pack(tree()), "outbag", context()).num_rows == 30


def test_what_a_site_trains_it_judges_as_scikit_learn_does_and_its_rows_stay_as_they_are():
    def make_model(config):
        return make_pipeline(StandardScaler(copy=False), DecisionTreeClassifier(max_depth=2))

    data, rows = copy.deepcopy(TREES), copy.deepcopy(TREES)
    site = model_site_of(make_model, data)
    shipment = site.train({}, context())
    assert shipment.num_rows == 90
    expected = np.mean(make_model({}).fit(*rows.inbag).predict(X[90:].copy()) != rows.outbag.y)
    assert site.judge(shipment.model, "outbag", context()) == (pytest.approx(expected), 30)
    assert np.array_equal(np.concatenate([bag.x for bag in data]), X)


# -- a site's own model, before it leaves ----------------------------------------------------------


class Counted(KNeighborsClassifier):
    """Nobody trusts it."""

    num_fits = 0

    def fit(self, x, y):
        Counted.num_fits += 1
        return super().fit(x, y)


@pytest.fixture
def counted():
    Counted.num_fits = 0
    return lambda config: Counted(algorithm="brute")


def test_a_type_that_is_not_trusted_is_found_after_one_fit_and_the_line_that_is_named_is_enough(counted):
    line = f'trusted = "{Counted.__module__}.Counted"'
    with pytest.raises(ModelError, match=rf"set in node_config of every site: {line}"):
        model_site_of(counted).train({}, context())
    assert Counted.num_fits == 1
    site = model_site_of(counted, trusted=f"{Counted.__module__}.Counted")
    shipment = site.train({}, context())
    assert shipment.carries
    assert site.judge(shipment.model, "outbag", context()).num_rows == 30


# -- models of other libraries --------------------------------------------------------------------


def test_an_export_of_another_model_is_found_before_it_leaves():
    lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is not installed")

    def make_model(config=None):
        return lightgbm.LGBMClassifier(n_estimators=10, n_jobs=1, verbose=-1)

    def export(model, x):
        return make_model().fit(x, x[:, 3] > 0).booster_.model_to_string().encode()

    with pytest.raises(ModelError, match=r"setup: the packed model predicts otherwise .* of 90 rows"):
        model_site_of(make_model, format="lightgbm-text", export=export).train({}, context())


def test_a_pipeline_that_the_format_cannot_hold_says_so():
    site = model_site_of(format="xgboost-json")
    with pytest.raises(ObjectiveError, match=r"export: .*save_raw"):
        site.train({}, context())


def test_the_example_in_the_documentation_runs(capsys):
    pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    page = (Path(__file__).parents[2] / "docs" / "papers" / "rfms.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(import lightgbm.*?)```", page, re.DOTALL)
    exec(compile(code, "rfms.md", "exec"), {"__name__": "__main__"})
    losses = np.array(capsys.readouterr().out.strip().splitlines()[-1].strip("[]").split(), dtype=float)
    assert len(losses) == 8
    assert (losses < 0.3).all()
