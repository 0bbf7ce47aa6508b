"""A client's own images, split among the clients so that each has its own mix of labels.

Every client holds three parts: rows to train on, rows that judge trials, and rows that tuning never reads.
"""

from functools import lru_cache

import numpy as np
import torch


@lru_cache(maxsize=32)
def load_data(dataset, concentration, max_rows, partition, num_partitions):
    """Return the rows `(images, labels)` to train on, to judge trials by, and to test the final model."""
    load = {"cifar10": load_cifar10, "digits": load_digits}[dataset]
    images, labels = load(concentration, partition, num_partitions)
    order = np.random.default_rng(partition).permutation(len(labels))[: max_rows or None]
    quarter = len(order) // 4
    parts = order[2 * quarter :], order[:quarter], order[quarter : 2 * quarter]
    return [(torch.tensor(images[part]), torch.tensor(labels[part])) for part in parts]


def load_cifar10(concentration, partition, num_partitions):
    from flwr_datasets import FederatedDataset
    from flwr_datasets.partitioner import DirichletPartitioner

    split = DirichletPartitioner(num_partitions, partition_by="label", alpha=concentration, seed=1)
    federated = FederatedDataset(dataset="uoft-cs/cifar10", partitioners={"train": split})
    rows = federated.load_partition(partition).with_format("numpy")
    images = np.asarray(rows["img"][:], dtype=np.float32).transpose(0, 3, 1, 2)  # (n, 3, 32, 32)
    return images / 127.5 - 1, np.asarray(rows["label"][:], dtype=np.int64)


def load_digits(concentration, partition, num_partitions):
    from sklearn.datasets import load_digits as shipped

    x, y = shipped(return_X_y=True)
    rng = np.random.default_rng(1)  # all nodes draw the same split
    owner = np.empty(len(y), dtype=int)
    for label in range(10):
        shares = rng.dirichlet([concentration] * num_partitions)
        owner[y == label] = rng.choice(num_partitions, (y == label).sum(), p=shares)
    owner[: 8 * num_partitions] = np.tile(np.arange(num_partitions), 8)  # nobody is left with nothing
    own = owner == partition
    return (x[own].reshape(-1, 1, 8, 8) / 8 - 1).astype(np.float32), y[own].astype(np.int64)
