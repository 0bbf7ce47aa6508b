"""What is tuned: a support vector machine with an RBF kernel, as in the paper's first experiment."""

from sklearn.svm import SVC

from fbo_flower import Float, SearchSpace
from fts_baseline.dataset import Data

# linear scales, as in the paper; `log=True` makes this problem easier for every algorithm
SPACE = SearchSpace({"C": Float(1e-4, 10.0), "gamma": Float(1e-2, 10.0)})


def accuracy(config: dict, data: Data) -> float:
    """Return the accuracy on a node's own test rows."""
    model = SVC(C=config["C"], gamma=config["gamma"])
    return float(model.fit(data.x_train, data.y_train).score(data.x_test, data.y_test))
