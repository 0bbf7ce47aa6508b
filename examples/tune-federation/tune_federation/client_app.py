"""A FedAvg client. It knows nothing of tuning: its hyperparameters are in the message's config, as always."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from tune_federation.task import accuracy, load_data, train

app = ClientApp()


@app.train()
def fit(message: Message, context: Context) -> Message:
    config = message.content["config"]
    own, _ = load_data(context.node_config, context.run_config["concentration"])
    model = message.content["arrays"].to_numpy_ndarrays()
    model = train(model, own, config["learning-rate"], config["local-epochs"], config["batch-size"])
    metrics = MetricRecord({"num-examples": len(own[1])})
    return Message(RecordDict({"arrays": ArrayRecord(model), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    _, held_out = load_data(context.node_config, context.run_config["concentration"])
    score = accuracy(message.content["arrays"].to_numpy_ndarrays(), held_out)
    metrics = MetricRecord({"num-examples": len(held_out[1]), "accuracy": score})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
