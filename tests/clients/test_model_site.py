"""A site trains, packs and judges real models."""

import copy
import re
from pathlib import Path

import numpy as np
import pytest
from crafted_models import X, Y, tree
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from fbo_flower.clients import model_site, site_app
from fbo_flower.clients.model_site import ModelSite, SiteOptions
from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.clients.site import Bag, SiteData, SiteObjective
from fbo_flower.errors import ModelError, ObjectiveError
from fbo_flower.models import pack
from fbo_flower.models.jail import Confinement
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.space import Float, SearchSpace
from fbo_flower.strategies import RFMS

DATA = SiteData(Bag(X[:90], Y[:90]), Bag(X[90:], Y[90:]))
CONTEXT = ObjectiveContext("site", 0, 0, 1, generator(0, "evaluation"))


def model_site_of(
    make_model=lambda config: DecisionTreeClassifier(max_depth=2), data=DATA, *, export=None, format="skops",
    **options
):  # fmt: skip
    objective = SiteObjective(make_model, lambda _: data, folds=3, format=format, export=export)
    return ModelSite(objective, SiteOptions(**{"in_process": True, **options}))


def test_a_site_that_requires_confinement_judges_nothing_where_something_is_not_denied(monkeypatch):
    monkeypatch.setattr(model_site, "confinement", lambda: Confinement(("reading",), ("landlock",)))
    site = model_site_of(require_confinement=True, in_process=False)
    with pytest.raises(ModelError, match="network, writing, processes, as require_confinement"):
        site.judge(pack(tree()), "outbag", CONTEXT)
    assert model_site_of(in_process=False).judge(pack(tree()), "outbag", CONTEXT).num_rows == 30


def check_judged(site, make_model, data):
    """What a site trains it judges as scikit-learn does."""
    shipment = site.train({}, CONTEXT)
    assert shipment.num_rows == 90
    expected = np.mean(make_model({}).fit(*data.inbag).predict(X[90:].copy()) != data.outbag.y)
    assert site.judge(shipment.model, "outbag", CONTEXT) == (pytest.approx(expected), 30)
    return shipment


@pytest.mark.parametrize(
    "make_model",
    [
        lambda config: DecisionTreeClassifier(max_depth=2),
        lambda config: make_pipeline(StandardScaler(copy=False), DecisionTreeClassifier(max_depth=2)),
    ],
    ids=["tree", "works in place"],
)
def test_what_a_site_trains_it_can_judge(make_model):
    data = copy.deepcopy(DATA)
    check_judged(model_site_of(make_model, data), make_model, copy.deepcopy(DATA))
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
        model_site_of(counted).train({}, CONTEXT)
    assert Counted.num_fits == 1
    site = model_site_of(counted, trusted=f"{Counted.__module__}.Counted")
    shipment = site.train({}, CONTEXT)
    assert shipment.carries
    assert site.judge(shipment.model, "outbag", CONTEXT).num_rows == 30


@pytest.mark.parametrize(
    ("make_model", "num_failed", "reason"),
    [(None, 1, "trusted = "), (lambda config: SVC(), 3, "without rows of the openbox's data")],
    ids=["untrusted", "with rows"],
)
def test_a_study_of_models_that_no_site_may_send_ends_at_once_unless_another_configuration_may_avoid_it(
    make_model, num_failed, reason, counted
):
    space = SearchSpace({"x": Float(0.0, 1.0)})
    app = site_app(make_model or counted, space, lambda context: DATA, folds=3, seed=3)
    roles = {site: {"role": role} for site, role in enumerate(("openbox", "curator", "lockbox"))}
    strategy = RFMS(num_agents=3, seed=3, num_initial=3, num_trials=8)
    with pytest.raises(ObjectiveError, match=f"all of {num_failed} evaluations failed, the first .*{reason}"):
        strategy.start(InProcessGrid(app, 3, node_configs=roles), num_rounds=None)
    failures = strategy.study.models["failure"]
    assert len(failures) == num_failed  # all of the initial design, if it may be avoided
    assert reason in failures[0]
    assert Counted.num_fits == (make_model is None)


# -- models of other libraries --------------------------------------------------------------------


def test_a_site_trains_and_judges_models_of_lightgbm():
    lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is not installed")

    def make_model(config):
        return lightgbm.LGBMClassifier(n_estimators=10, num_leaves=4, n_jobs=1, verbose=-1)

    names = np.array(["ill", "well"])
    data = SiteData(Bag(X[:90], names[Y[:90]]), Bag(X[90:], names[Y[90:]]))
    shipment = check_judged(model_site_of(make_model, data, format="lightgbm-text"), make_model, data)
    assert shipment.carries == ()


def test_an_export_of_another_model_is_found_before_it_leaves():
    lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is not installed")

    def export(model, x):
        other = lightgbm.LGBMClassifier(n_estimators=10, n_jobs=1, verbose=-1).fit(x, x[:, 3] > 0)
        return other.booster_.model_to_string().encode()

    site = model_site_of(
        lambda config: lightgbm.LGBMClassifier(n_estimators=10, n_jobs=1, verbose=-1),
        format="lightgbm-text",
        export=export,
    )
    with pytest.raises(ModelError, match=r"setup: the packed model predicts otherwise .* of 90 rows"):
        site.train({}, CONTEXT)


def test_a_pipeline_that_the_format_cannot_hold_says_so():
    site = model_site_of(format="xgboost-json")
    with pytest.raises(ObjectiveError, match=r"export: .*save_raw"):
        site.train({}, CONTEXT)


def test_the_example_in_the_documentation_runs(capsys):
    pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    page = (Path(__file__).parents[2] / "docs" / "papers" / "rfms.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(import lightgbm.*?)```", page, re.DOTALL)
    exec(compile(code, "rfms.md", "exec"), {"__name__": "__main__"})
    losses = np.array(capsys.readouterr().out.strip().splitlines()[-1].strip("[]").split(), dtype=float)
    assert len(losses) == 8
    assert (losses < 0.3).all()
