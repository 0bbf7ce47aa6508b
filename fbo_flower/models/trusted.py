"""The types that a received model may contain: estimators on NumPy, libsvm or trees, and plain values.

Excluded on purpose: nearest neighbours, kernel ridge and Gaussian processes, which contain their training
rows; stochastic gradient descent, boosting and neural networks, whose losses, random states and predictors
are too much code to check here; and estimators that call a function sent with the model. An operator who
needs one of these adds it to the trusted types by name.
"""

from __future__ import annotations

# module of sklearn: its classes
_CLASSES = """
pipeline: Pipeline FeatureUnion
compose._column_transformer: ColumnTransformer _RemainderColsList
impute._base: SimpleImputer MissingIndicator
preprocessing._data: StandardScaler MinMaxScaler MaxAbsScaler RobustScaler Normalizer Binarizer
preprocessing._data: QuantileTransformer PowerTransformer
preprocessing._encoders: OneHotEncoder OrdinalEncoder
preprocessing._label: LabelEncoder LabelBinarizer
preprocessing._polynomial: PolynomialFeatures
preprocessing._function_transformer: FunctionTransformer
feature_selection._variance_threshold: VarianceThreshold
decomposition._pca: PCA
decomposition._truncated_svd: TruncatedSVD
linear_model._logistic: LogisticRegression LogisticRegressionCV
linear_model._base: LinearRegression
linear_model._ridge: Ridge RidgeCV RidgeClassifier RidgeClassifierCV
linear_model._coordinate_descent: Lasso LassoCV ElasticNet ElasticNetCV
linear_model._bayes: BayesianRidge ARDRegression
linear_model._huber: HuberRegressor
linear_model._quantile: QuantileRegressor
svm._classes: SVC NuSVC SVR NuSVR LinearSVC LinearSVR
tree._classes: DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier ExtraTreeRegressor
ensemble._forest: RandomForestClassifier RandomForestRegressor ExtraTreesClassifier ExtraTreesRegressor
ensemble._bagging: BaggingClassifier BaggingRegressor
ensemble._weight_boosting: AdaBoostClassifier AdaBoostRegressor
naive_bayes: GaussianNB BernoulliNB MultinomialNB ComplementNB CategoricalNB
discriminant_analysis: LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis
neighbors._nearest_centroid: NearestCentroid
dummy: DummyClassifier DummyRegressor
"""  # FunctionTransformer is usable without a function only: functions are refused
ESTIMATORS = frozenset(
    f"sklearn.{module}.{name}"
    for module, names in (line.split(":") for line in _CLASSES.strip().splitlines())
    for name in names.split()
)
PRIMITIVES = frozenset(f"builtins.{name}" for name in ("str", "int", "float", "bool"))
_NUMBERS = "bool bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
NUMBERS = frozenset(f"numpy.{name}" for name in _NUMBERS.split())
