"""Wrappers that tune the clients while the model trains: FedEx, FedPop and personal hyperparameters."""

from studies.tuning.fedex import FedEx
from studies.tuning.fedpop import FedPop
from studies.tuning.personal import Personal

__all__ = ["FedEx", "FedPop", "Personal"]
