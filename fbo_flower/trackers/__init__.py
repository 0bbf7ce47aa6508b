"""Callbacks of running studies, for progress in a line, Optuna, TensorBoard, MLflow and Weights & Biases."""

from fbo_flower.trackers.callback import Callback, OptunaTracker, RoundInfo, StudyInfo
from fbo_flower.trackers.dashboards import MLflowTracker, TensorBoardTracker, WandbTracker
from fbo_flower.trackers.inline import InlineProgress

__all__ = [
    "Callback",
    "InlineProgress",
    "MLflowTracker",
    "OptunaTracker",
    "RoundInfo",
    "StudyInfo",
    "TensorBoardTracker",
    "WandbTracker",
]
