"""The types that a received model may contain: estimators on NumPy, libsvm or trees, and plain values.

Excluded on purpose: nearest neighbours, kernel ridge and Gaussian processes, which contain their training
rows; stochastic gradient descent, boosting and neural networks, whose losses, random states and predictors
are too much code to check here; and estimators that call a function sent with the model. An operator who
needs one of these adds it to the trusted types by name.
"""

from __future__ import annotations


def _names(module: str, classes: str) -> frozenset[str]:
    return frozenset(f"sklearn.{module}.{name}" for name in classes.split())


ESTIMATORS = frozenset().union(
    _names("pipeline", "Pipeline FeatureUnion"),
    _names("compose._column_transformer", "ColumnTransformer _RemainderColsList"),
    _names("impute._base", "SimpleImputer MissingIndicator"),
    _names(
        "preprocessing._data",
        "StandardScaler MinMaxScaler MaxAbsScaler RobustScaler Normalizer Binarizer QuantileTransformer "
        "PowerTransformer",
    ),
    _names("preprocessing._encoders", "OneHotEncoder OrdinalEncoder"),
    _names("preprocessing._label", "LabelEncoder LabelBinarizer"),
    _names("preprocessing._polynomial", "PolynomialFeatures"),
    _names(
        "preprocessing._function_transformer", "FunctionTransformer"
    ),  # usable without a function only: functions are refused
    _names("feature_selection._variance_threshold", "VarianceThreshold"),
    _names("decomposition._pca", "PCA"),
    _names("decomposition._truncated_svd", "TruncatedSVD"),
    _names("linear_model._logistic", "LogisticRegression LogisticRegressionCV"),
    _names("linear_model._base", "LinearRegression"),
    _names("linear_model._ridge", "Ridge RidgeCV RidgeClassifier RidgeClassifierCV"),
    _names("linear_model._coordinate_descent", "Lasso LassoCV ElasticNet ElasticNetCV"),
    _names("linear_model._bayes", "BayesianRidge ARDRegression"),
    _names("linear_model._huber", "HuberRegressor"),
    _names("linear_model._quantile", "QuantileRegressor"),
    _names("svm._classes", "SVC NuSVC SVR NuSVR LinearSVC LinearSVR"),
    _names(
        "tree._classes",
        "DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier ExtraTreeRegressor",
    ),
    _names(
        "ensemble._forest",
        "RandomForestClassifier RandomForestRegressor ExtraTreesClassifier ExtraTreesRegressor",
    ),
    _names("ensemble._bagging", "BaggingClassifier BaggingRegressor"),
    _names("ensemble._weight_boosting", "AdaBoostClassifier AdaBoostRegressor"),
    _names("naive_bayes", "GaussianNB BernoulliNB MultinomialNB ComplementNB CategoricalNB"),
    _names("discriminant_analysis", "LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis"),
    _names("neighbors._nearest_centroid", "NearestCentroid"),
    _names("dummy", "DummyClassifier DummyRegressor"),
)
PRIMITIVES = frozenset(f"builtins.{name}" for name in ("str", "int", "float", "bool"))
NUMBERS = frozenset(
    f"numpy.{name}"
    for name in (
        *("bool", "bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    )
)
