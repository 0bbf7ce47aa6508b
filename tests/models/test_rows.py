import numpy as np
import pytest
from crafted_models import X, Y
from hypothesis import given
from hypothesis import strategies as st
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
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, NuSVC
from sklearn.tree import DecisionTreeClassifier

from fbo_flower.models import carries_rows

HOLES = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
CARRIERS = [SVC(), SVC(kernel="linear"), NuSVC(), SVR(), KNeighborsClassifier(), KernelRidge(),
            KNeighborsClassifier(algorithm="brute"), GaussianProcessClassifier()]  # fmt: skip
OTHERS = [LogisticRegression(), LinearSVC(), DecisionTreeClassifier(), RandomForestClassifier(20),
          GaussianNB(), NearestCentroid(),
          make_pipeline(QuantileTransformer(n_quantiles=50), GaussianNB())]  # fmt: skip


@pytest.mark.parametrize("model", CARRIERS, ids=str)
def test_models_made_of_their_rows_are_known_by_name(model):
    assert carries_rows(model.fit(X, Y))
    assert carries_rows(make_pipeline(StandardScaler(), model).fit(X, Y))
    assert carries_rows(make_pipeline(StandardScaler(), model).fit(X, Y), X)


@pytest.mark.parametrize("model", OTHERS, ids=str)
def test_models_that_summarise_carry_none(model):
    assert carries_rows(model.fit(X, Y), X) == []
    assert carries_rows(make_pipeline(SimpleImputer(), StandardScaler(), model).fit(HOLES, Y), HOLES) == []


def test_rows_inside_other_models_are_found():
    model = BaggingClassifier(SVC(), n_estimators=2).fit(X, Y)
    assert len(carries_rows(model)) == 2


# -- by comparison, without a known name ----------------------------------------------------------


def hidden(model, rows, name="something_"):
    """The model, with rows in a place of its own."""
    setattr(model, name, rows)
    return model


@pytest.mark.parametrize(
    "rows",
    [
        X, X[3:4], X[::7].astype(np.float32), X[:2].T, np.vstack([np.zeros(5), X[5]]), X[:4].reshape(2, 2, 5),
        X[:3] * (1 + 1e-9),
    ],
    ids=["all", "one", "float32", "transposed", "one among others", "three axes", "but for rounding"],
)  # fmt: skip
def test_rows_are_found_wherever_they_are(rows):
    model = hidden(LogisticRegression().fit(X, Y), rows)
    assert carries_rows(model) == []
    assert carries_rows(model, X) == [".something_"]
    inside = hidden(LogisticRegression().fit(X, Y), {"cache": [rows]})
    assert carries_rows(inside, X) == [".something_['cache'][0]"]


def test_rows_of_somebody_else_are_not_found():
    other = np.random.default_rng(5).standard_normal(X.shape)
    assert carries_rows(hidden(LogisticRegression().fit(X, Y), other), X) == []
    assert carries_rows(hidden(LogisticRegression().fit(X, Y), X + 1e-3), X) == []


def test_rows_that_a_pipeline_has_transformed_are_found():
    # landmarks are rows after the scaler and the axes; fitting and transforming differ by rounding
    model = make_pipeline(
        SimpleImputer(), StandardScaler(), PCA(4), Nystroem(n_components=7), LogisticRegression()
    )
    model.fit(HOLES, Y)
    assert carries_rows(model) == []
    assert carries_rows(model, HOLES) == [".steps[3][1].components_"]


def test_rows_with_missing_values_are_found():
    assert carries_rows(hidden(LogisticRegression().fit(X, Y), HOLES[:5]), HOLES) == [".something_"]


def test_the_centroid_of_a_class_with_one_member_is_found():
    y = np.where(np.arange(len(X)) == 3, 2, Y)
    assert carries_rows(NearestCentroid().fit(X, y), X) == [".centroids_"]
    assert ".theta_" in carries_rows(GaussianNB().fit(X, y), X)


def test_columns_of_a_column_transformer_are_followed():
    inner = make_pipeline(StandardScaler(), Nystroem(n_components=5))
    x = np.column_stack([X, X[:, 0].round()])
    model = make_pipeline(
        make_column_transformer((inner, [0, 1, 2]), (OneHotEncoder(handle_unknown="ignore"), [5])),
        LogisticRegression(),
    ).fit(x, Y)
    found = carries_rows(model, x)
    assert len(found) == 1
    assert found[0].endswith(".components_")


def test_constant_rows_are_no_evidence():
    x = np.vstack([X, np.zeros(5)])
    model = hidden(LogisticRegression().fit(X, Y), np.zeros((1, 5)))  # coefficients that a penalty removed
    assert carries_rows(model, x) == []


def test_rows_of_text_are_compared_once_they_are_numbers():
    x = np.array(["a", "b", "c", "d"], dtype=object)[np.random.default_rng(2).integers(4, size=(40, 3))]
    model = make_pipeline(OneHotEncoder(), SVC()).fit(x, np.arange(40) % 2)
    assert carries_rows(model, x) == [".steps[1][1].support_vectors_"]
    assert (
        carries_rows(make_pipeline(OneHotEncoder(), LogisticRegression()).fit(x, np.arange(40) % 2), x) == []
    )


@given(st.integers(0, 1000), st.integers(2, 8), st.integers(1, 60))
def test_one_row_among_many_is_always_found(seed, width, count):
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal((count, width)) * 10.0 ** generator.integers(-3, 4, width)
    foreign = generator.standard_normal((30, width)) + 1000
    index = generator.integers(count)
    model = hidden(GaussianNB(), np.vstack([foreign, rows[index]]))
    assert carries_rows(model, rows) == [".something_"]
    assert carries_rows(hidden(GaussianNB(), foreign), rows) == []
