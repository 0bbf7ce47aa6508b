"""A site trains, packs and judges real models."""

import numpy as np
import pytest
from crafted_models import X, Y, tree
from sklearn.tree import DecisionTreeClassifier

from fbo_flower.clients import model_site
from fbo_flower.clients.model_site import ModelSite
from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.clients.site import Bag, SiteData, SiteObjective
from fbo_flower.clients.site_options import SiteOptions
from fbo_flower.errors import ModelError
from fbo_flower.models import pack
from fbo_flower.models.jail import Confinement
from fbo_flower.numerics.seeding import generator

DATA = SiteData(Bag(X[:90], Y[:90]), Bag(X[90:], Y[90:]))
CONTEXT = ObjectiveContext("site", 0, 0, 1, generator(0, "evaluation"))


def model_site_of(make_model=lambda config: DecisionTreeClassifier(max_depth=2), *, export=None, **options):
    objective = SiteObjective(make_model, lambda _: DATA, folds=3)
    return ModelSite(objective, SiteOptions(**options))


def test_a_site_that_requires_confinement_judges_nothing_where_something_is_not_denied(monkeypatch):
    monkeypatch.setattr(model_site, "confinement", lambda: Confinement(("reading",), ("landlock",)))
    site = model_site_of(require_confinement=True)
    with pytest.raises(ModelError, match="network, writing, processes, as require_confinement"):
        site.judge(pack(tree()), "outbag", CONTEXT)
    assert model_site_of().judge(pack(tree()), "outbag", CONTEXT).num_rows == 30


def test_what_the_child_is_denied_is_logged_once(monkeypatch):
    lines = []
    monkeypatch.setattr(model_site, "log", lambda level, text, *values: lines.append(text % values))
    model_site._announce.cache_clear()
    site = model_site_of()
    for _ in range(2):
        site.judge(pack(tree()), "inbag", CONTEXT)
    assert len(lines) == 1
    assert lines[0].startswith("models are judged in a child process; denied: ")


def test_what_a_site_trains_it_can_judge():
    site = model_site_of()
    shipment = site.train({}, CONTEXT)
    assert shipment.num_rows == 90
    model = DecisionTreeClassifier(max_depth=2).fit(*DATA.inbag)
    expected = np.mean(model.predict(X[90:]) != Y[90:])
    assert site.judge(shipment.model, "outbag", CONTEXT) == (pytest.approx(expected), 30)
