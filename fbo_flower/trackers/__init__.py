"""Callbacks of running studies, for progress in a line, Optuna, TensorBoard, MLflow and Weights & Biases."""

from fbo_flower.trackers.callback import Callback, InlineProgress, OptunaTracker, RoundInfo, StudyInfo
from fbo_flower.trackers.dashboards import MLflowTracker, TensorBoardTracker, WandbTracker

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
