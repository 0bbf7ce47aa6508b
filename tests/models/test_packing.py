"""Every type that a site may send comes back as it was; and rows of data in a model are found."""

import importlib
import warnings

import numpy as np
import pytest
import skops.io
from crafted_models import X, Y, forest, linear, parts, raw, svm, tree
from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier, is_regressor
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer, MinMaxScaler, OneHotEncoder, QuantileTransformer, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, NuSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from fbo_flower.errors import ObjectiveError
from fbo_flower.models import ESTIMATORS, carries_rows, pack, unpack

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


@pytest.mark.parametrize("learner", [*LEARNERS, *REGRESSORS], ids=str)
def test_a_learner_comes_back_and_predicts_the_same(learner):
    targets = [Y, np.array(["ill", "so", "well"])[THREE]]
    for y in targets if is_classifier(learner) else [X[:, 0] + 0.1 * X[:, 1] ** 2]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            same(learner.fit(X, y), X)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step).__name__)
def test_a_step_comes_back_inside_a_pipeline(step):
    same(make_pipeline(step, SimpleImputer(), LogisticRegression()).fit(X.round(1), Y), X.round(1))


ONE_COLUMN = np.where(np.arange(5) == 0, np.where(Y[:, None] == 1, np.nan, X), X)  # missing or present


@pytest.mark.parametrize(
    ("model", "x", "y"),
    [
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler(), SVC()), HOLES, Y),
        (RandomForestClassifier(20, random_state=0), HOLES, Y),
        (DecisionTreeClassifier(), ONE_COLUMN, Y),  # with a threshold of infinity
        (DecisionTreeClassifier(ccp_alpha=0.01), X, Y),
        (DecisionTreeRegressor(max_leaf_nodes=9, ccp_alpha=0.001), X, X[:, :2]),
        (DecisionTreeClassifier(), X, np.zeros(len(X))),  # a single leaf
    ],
    ids=str,
)
def test_missing_values_and_trees_of_all_forms_come_back(model, x, y):
    same(model.fit(x, y), x)


def test_equal_models_are_equal_bytes_however_they_were_made_and_start_no_threads():
    assert unpack(pack(RandomForestClassifier(3, n_jobs=1000).fit(X, Y))).n_jobs is None
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


def test_an_operator_may_trust_what_is_not_on_the_list():
    model = KNeighborsClassifier(algorithm="brute").fit(X, Y)
    name = f"{type(model).__module__}.{type(model).__name__}"
    np.testing.assert_array_equal(unpack(pack(model), [name]).predict(X), model.predict(X))


@pytest.mark.parametrize(
    "model",
    [SVC(), NuSVC(), SVR(), KernelRidge(), KNeighborsClassifier(), KNeighborsClassifier(algorithm="brute"),
     GaussianProcessClassifier()],
    ids=str,
)  # fmt: skip
def test_models_made_of_their_rows_are_known_by_name(model):
    assert carries_rows(model.fit(X, Y))
    assert carries_rows(make_pipeline(StandardScaler(), model).fit(X, Y), X)
    assert len(carries_rows(BaggingClassifier(SVC(), n_estimators=2).fit(X, Y))) == 2, "inside another model"


@pytest.mark.parametrize(
    "model",
    [LogisticRegression(), LinearSVC(), RandomForestClassifier(20), GaussianNB(), NearestCentroid(),
     make_pipeline(QuantileTransformer(n_quantiles=50), GaussianNB())],
    ids=str,
)  # fmt: skip
def test_models_that_summarise_carry_none(model):
    assert carries_rows(make_pipeline(SimpleImputer(), StandardScaler(), model).fit(HOLES, Y), HOLES) == []


# -- by comparison, without a known name ----------------------------------------------------------


def hidden(model, rows, name="something_"):
    """The model, with rows in a place of its own."""
    setattr(model, name, rows)
    return model


@pytest.mark.parametrize(
    "rows",
    [X, X[::7].astype(np.float32), X[:2].T, np.vstack([np.zeros(5), X[5]]), X[:4].reshape(2, 2, 5),
     X[:3] * (1 + 1e-9)],
    ids=["all", "float32", "transposed", "one among others", "three axes", "but for rounding"],
)  # fmt: skip
def test_rows_are_found_wherever_they_are(rows):
    model = hidden(LogisticRegression().fit(X, Y), rows)
    assert carries_rows(model) == []
    assert carries_rows(model, X) == [".something_"]
    inside = hidden(LogisticRegression().fit(X, Y), {"cache": [rows]})
    assert carries_rows(inside, X) == [".something_['cache'][0]"]
    missing = hidden(LogisticRegression().fit(X, Y), HOLES[:5])
    assert carries_rows(missing, HOLES) == [".something_"]


def test_rows_of_somebody_else_and_constant_rows_are_no_evidence():
    zeros = np.zeros((1, 5))  # coefficients that a penalty removed
    for held, rows in ((X + 1e-3, X), (zeros, np.vstack([X, zeros]))):
        assert carries_rows(hidden(LogisticRegression().fit(X, Y), held), rows) == []


LANDMARKS = make_pipeline(StandardScaler(), Nystroem(n_components=5))
TEXTS = np.array(["a", "b", "c", "d"], dtype=object)[np.random.default_rng(2).integers(4, size=(120, 3))]
COLUMNS = make_column_transformer((LANDMARKS, [0, 1, 2]), (OneHotEncoder(handle_unknown="ignore"), [5]))


@pytest.mark.parametrize(
    ("model", "x", "y", "found"),
    [
        # landmarks are rows after the scaler and the axes; fitting and transforming differ by rounding
        (make_pipeline(SimpleImputer(), PCA(4), Nystroem(n_components=7), LogisticRegression()), HOLES, Y,
         ".steps[2][1].components_"),
        (make_pipeline(COLUMNS, LinearSVC()), np.column_stack([X, X[:, 0].round()]), Y, "components_"),
        (make_pipeline(OneHotEncoder(), SVC()), TEXTS, Y, ".steps[1][1].support_vectors_"),
        (NearestCentroid(), X, np.where(np.arange(120) == 3, 2, Y), ".centroids_"),  # of one member
    ],
)  # fmt: skip
def test_rows_that_a_model_has_transformed_are_found(model, x, y, found):
    (place,) = carries_rows(model.fit(x, y), x)
    assert place.endswith(found)
