"""The agent: it scores a configuration on the node's own data."""

from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score
from sklearn.tree import DecisionTreeClassifier

from fbo_flower import Float, Int, SearchSpace, client_app


def objective(config: dict, context) -> float:
    x, y = load_wine(return_X_y=True)  # put your data here; context.node_config may hold their path
    own = slice(context.partition, None, context.node_config["num-partitions"])
    tree = DecisionTreeClassifier(**config, random_state=0)
    return cross_val_score(tree, x[own], y[own], cv=3).mean()


space = SearchSpace({"max_depth": Int(1, 8), "min_samples_leaf": Float(0.01, 0.3, log=True)})
app = client_app(objective, space)  # values stay here, unless `disclose` in node_config allows more
