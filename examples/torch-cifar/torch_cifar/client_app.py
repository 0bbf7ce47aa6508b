"""A FedAvg client. It knows nothing of tuning: its hyperparameters are in the message's config, as always."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from torch_cifar.data import load_data
from torch_cifar.task import accuracy, new_model, train

app = ClientApp()


def received(message, context):
    """Return the message's model and the node's own rows."""
    settings, node = context.run_config, context.node_config
    model = new_model(settings["dataset"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    split = settings["dataset"], settings["concentration"], settings["max-rows"]
    return model, load_data(*split, node["partition-id"], node["num-partitions"])


@app.train()
def fit(message: Message, context: Context) -> Message:
    model, (own, _, _) = received(message, context)
    train(model, own, message.content["config"])
    metrics = MetricRecord({"num-examples": len(own[1])})
    arrays = ArrayRecord(model.state_dict())
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    model, (_, held_out, test) = received(message, context)
    scores = {"accuracy": accuracy(model, held_out), "test-accuracy": accuracy(model, test)}
    metrics = MetricRecord({"num-examples": len(held_out[1]), **scores})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
