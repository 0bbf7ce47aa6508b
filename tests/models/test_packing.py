"""Every type that a site may send comes back as it was, in as few bytes and as the same ones."""

import importlib
import warnings

import numpy as np
import pytest
import skops.io
from crafted_models import X, Y, forest, linear, parts, raw, svm, tree
from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier, is_regressor
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer, MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from fbo_flower.errors import ObjectiveError
from fbo_flower.models import ESTIMATORS, pack, unpack

THREE = np.digitize(X[:, 0], [-0.5, 0.5])  # a third class
HOLES = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
OPTIONS = {
    "AdaBoostClassifier": {"n_estimators": 5},
    "AdaBoostRegressor": {"n_estimators": 5},
    "BaggingClassifier": {"n_estimators": 3},
    "BaggingRegressor": {"n_estimators": 3},
    "ColumnTransformer": {
        "transformers": [
            ("one-hot", OneHotEncoder(handle_unknown="ignore"), [0]),
            ("scaled", StandardScaler(), slice(1, 3)),
        ],
        "remainder": "passthrough",
    },
    "DecisionTreeClassifier": {"max_depth": 4},
    "DecisionTreeRegressor": {"max_depth": 4},
    "ElasticNet": {"alpha": 0.01},
    "ExtraTreesClassifier": {"n_estimators": 7},
    "ExtraTreesRegressor": {"n_estimators": 7},
    "FeatureUnion": {"transformer_list": [("scaled", StandardScaler()), ("axes", PCA(2))]},
    "Lasso": {"alpha": 0.01},
    "LogisticRegressionCV": {
        "Cs": 3, "l1_ratios": (0,), "use_legacy_attributes": False, "scoring": "accuracy",
    },
    "OneHotEncoder": {"handle_unknown": "ignore"},
    "OrdinalEncoder": {"handle_unknown": "use_encoded_value", "unknown_value": -1},
    "PCA": {"n_components": 3},
    "QuadraticDiscriminantAnalysis": {"reg_param": 0.1},
    "QuantileRegressor": {"alpha": 0},
    "QuantileTransformer": {"n_quantiles": 20},
    "RandomForestClassifier": {"n_estimators": 7, "n_jobs": 2},
    "RandomForestRegressor": {"n_estimators": 7},
    "SimpleImputer": {"add_indicator": True},
    "TruncatedSVD": {"n_components": 3},
}  # fmt: skip
BEFORE = {"CategoricalNB": Binarizer()} | dict.fromkeys(
    ("MultinomialNB", "ComplementNB"), MinMaxScaler(clip=True)
)
# of labels, of the imputer, of the pipelines and of the column transformer, which are here too
PARTS = {"LabelEncoder", "LabelBinarizer", "MissingIndicator", "Pipeline", "_RemainderColsList"}


def made(full_name):
    """An estimator of a trusted type, behind a step that it needs."""
    module, _, name = full_name.rpartition(".")
    estimator = getattr(importlib.import_module(module), name)(**OPTIONS.get(name, {}))
    return make_pipeline(BEFORE[name], estimator) if name in BEFORE else estimator


TYPES = [made(name) for name in sorted(ESTIMATORS) if name.rpartition(".")[2] not in PARTS]
LEARNERS = [
    *filter(is_classifier, TYPES),
    LogisticRegression(l1_ratio=0.5, solver="saga", C=0.1, max_iter=5000),
    *(SVC(kernel=kernel, degree=2) for kernel in ("linear", "poly")),
    made("sklearn.ensemble.BaggingClassifier").set_params(estimator=SVC()),
]
REGRESSORS = list(filter(is_regressor, TYPES))
STEPS = [step for step in TYPES if not is_classifier(step) and not is_regressor(step)]


def same(model, x):
    copy = unpack(pack(model))
    np.testing.assert_array_equal(copy.predict(x), model.predict(x))
    for method in ("predict_proba", "decision_function"):
        if hasattr(model, method):
            np.testing.assert_array_equal(getattr(copy, method)(x), getattr(model, method)(x))


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
@pytest.mark.parametrize("y", [Y, np.array(["ill", "so", "well"])[THREE]], ids=["two", "three texts"])
def test_a_classifier_comes_back_and_predicts_the_same(learner, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(learner.fit(X, y), X)


@pytest.mark.parametrize("learner", REGRESSORS, ids=str)
def test_a_regressor_comes_back_and_predicts_the_same(learner):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(learner.fit(X, X[:, 0] + 0.1 * X[:, 1] ** 2), X)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step).__name__)
def test_a_step_comes_back_inside_a_pipeline(step):
    same(make_pipeline(step, SimpleImputer(), LogisticRegression()).fit(X.round(1), Y), X.round(1))


def test_missing_values_stay_with_the_imputer_and_in_trees():
    same(make_pipeline(SimpleImputer(strategy="median"), StandardScaler(), SVC()).fit(HOLES, Y), HOLES)
    same(RandomForestClassifier(20, random_state=0).fit(HOLES, Y), HOLES)
    holes_in_one_column = np.where(np.arange(5) == 0, np.where(Y[:, None] == 1, np.nan, X), X)
    model = DecisionTreeClassifier().fit(holes_in_one_column, Y)
    assert np.isinf(model.tree_.threshold).any()  # missing against present
    same(model, holes_in_one_column)


def test_pruned_trees_and_best_first_trees_come_back():
    same(DecisionTreeClassifier(ccp_alpha=0.01).fit(X, Y), X)
    same(DecisionTreeClassifier(max_leaf_nodes=9).fit(X, Y), X)
    same(DecisionTreeRegressor(max_leaf_nodes=9, ccp_alpha=0.001).fit(X, X[:, :2]), X)
    same(DecisionTreeClassifier().fit(X, np.zeros(len(X))), X)  # a single leaf


def test_equal_models_are_equal_bytes_however_they_were_made():
    assert pack(forest()).tolist() == pack(forest()).tolist()
    assert pack(unpack(pack(forest()))).tolist() == pack(forest()).tolist()
    assert pack(svm()).tolist() != pack(linear()).tolist()


def test_a_payload_holds_no_address_of_memory_and_equal_arrays_once():
    model = forest(20)
    content = parts(pack(model))
    assert len(set(content.values())) == len(content) < len(parts(raw(model)))
    assert max(int(name.split(".")[0]) for name in content if name.endswith(".npy")) < len(content)
    assert str(id(model)).encode() not in content["schema.json"]
    assert len(pack(model)) < 0.8 * len(raw(model))


def test_a_payload_is_a_file_of_skops():
    types = ["numpy.dtype", "sklearn.tree._tree.Tree"]
    for model in (tree(), forest(), linear(), svm()):
        copy = skops.io.loads(pack(model).tobytes(), trusted=types)
        np.testing.assert_array_equal(copy.predict(X), model.predict(X))


def test_a_model_above_the_limit_is_not_packed():
    size = len(pack(forest()))
    assert len(pack(forest(), max_bytes=size)) == size
    with pytest.raises(ObjectiveError, match=rf"up to {size - 1} bytes, got {size}"):
        pack(forest(), max_bytes=size - 1)


class Strange(BaseEstimator, ClassifierMixin):
    def fit(self, x, y):
        self.file_ = open(__file__, encoding="utf-8")  # noqa: SIM115
        return self


def test_a_model_that_cannot_be_written_is_an_error_that_names_it():
    model = Strange().fit(X, Y)
    with model.file_, pytest.raises(ObjectiveError, match="Strange"):
        pack(model)


def test_threads_asked_for_by_a_model_are_not_started():
    model = RandomForestClassifier(3, n_jobs=1000).fit(X, Y)
    assert unpack(pack(model)).n_jobs is None


def test_an_operator_may_trust_what_is_not_on_the_list():
    model = KNeighborsClassifier(algorithm="brute").fit(X, Y)
    name = f"{type(model).__module__}.{type(model).__name__}"
    np.testing.assert_array_equal(unpack(pack(model), [name]).predict(X), model.predict(X))
