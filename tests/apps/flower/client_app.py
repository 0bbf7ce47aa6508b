"""A client in NumPy that reads its hyperparameters from the messages."""

from flwr.clientapp import ClientApp
from task import accuracy, fit, load_data, reply

client = ClientApp()


@client.train()
def train(message, context):
    x, y, _, _ = load_data(context)
    config, (weights,) = message.content["config"], message.content["arrays"].to_numpy_ndarrays()
    weights = fit(weights, x, y, config["lr"], config["local-epochs"], config.get("proximal-mu", 0.0))
    return reply(message, len(y), [weights], **{"train-accuracy": accuracy(weights, x, y)})


@client.evaluate()
def evaluate(message, context):
    _, _, x, y = load_data(context)
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    return reply(message, len(y), accuracy=accuracy(weights, x, y))
