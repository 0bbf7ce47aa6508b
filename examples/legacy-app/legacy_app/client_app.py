"""A ClientApp with a `client_fn` that returns a tuning agent."""

from flwr.client import Client
from flwr.clientapp import ClientApp
from flwr.common import Context
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score
from sklearn.tree import DecisionTreeClassifier

from fbo_flower import Float, Int, SearchSpace
from fbo_flower.clients import TuningAgent

space = SearchSpace({"max_depth": Int(1, 8), "min_samples_leaf": Float(0.01, 0.3, log=True)})


def objective(config: dict, context) -> float:
    x, y = load_wine(return_X_y=True)
    own = slice(context.partition, None, context.node_config["num-partitions"])
    tree = DecisionTreeClassifier(**config, random_state=0)
    return cross_val_score(tree, x[own], y[own], cv=3).mean()


def client_fn(context: Context) -> Client:
    return TuningAgent(objective, space, context).to_client()


app = ClientApp(client_fn=client_fn)
