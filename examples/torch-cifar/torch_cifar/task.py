"""The network, its training, and the test of it."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

CHANNELS = {"cifar10": 3, "digits": 1}  # of an image


def new_model(dataset):
    """Return a network for images of any size: it averages over 2 x 2 regions before the last layers."""
    return nn.Sequential(
        nn.Conv2d(CHANNELS[dataset], 16, kernel_size=3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(32 * 2 * 2, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def train(model, rows, config):
    """Train the model in place by SGD; `rows` are images `(n, channels, h, w)` and labels `(n,)`."""
    images, labels = rows
    optimiser = torch.optim.SGD(model.parameters(), lr=config["learning-rate"], momentum=config["momentum"])
    model.train()
    for _ in range(config["local-epochs"]):
        for batch in torch.randperm(len(labels)).split(config["batch-size"]):
            optimiser.zero_grad()
            cross_entropy(model(images[batch]), labels[batch]).backward()
            optimiser.step()


@torch.no_grad()
def accuracy(model, rows):
    images, labels = rows
    model.eval()
    return float((model(images).argmax(dim=1) == labels).float().mean())
