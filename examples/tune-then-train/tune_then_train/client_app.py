"""A FedAvg client with one changed line; the section `tuning` at the end adds tuning."""

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fbo_flower import Float, Int, SearchSpace
from fbo_flower.clients import add_tuning
from tune_then_train.task import accuracy, load_data, new_model, train

app = ClientApp()


@app.train()
def fit(message: Message, context: Context) -> Message:
    config, (own, _) = message.content["config"], load_data(context.node_config)
    config = context.state.get("tuned", config)  # what `keep` has left there
    model = message.content["arrays"].to_numpy_ndarrays()
    model = train(model, own, config["learning-rate"], config["local-epochs"])
    metrics = MetricRecord({"num-examples": len(own[1])})
    return Message(RecordDict({"arrays": ArrayRecord(model), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    _, held_out = load_data(context.node_config)
    score = accuracy(message.content["arrays"].to_numpy_ndarrays(), held_out)
    metrics = MetricRecord({"num-examples": len(held_out[1]), "accuracy": score})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


# -- tuning ------------------------------------------------------------------------------------


def objective(config: dict, context) -> float:
    """Return the held-out accuracy of the model that this node would send after one round."""
    own, held_out = load_data(context.node_config)
    model = train(new_model(), own, config["learning-rate"], config["local-epochs"])
    return accuracy(model, held_out)


def keep(answer, context: Context) -> None:
    """Keep this node's best values, with which it trains from now on."""
    context.state["tuned"] = ConfigRecord(answer.config)


space = SearchSpace({"learning-rate": Float(1e-3, 10, log=True), "local-epochs": Int(1, 8)})
add_tuning(app, objective, space, on_finish=keep)
