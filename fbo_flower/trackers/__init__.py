"""Callbacks of running studies, and ready ones for Optuna, TensorBoard, MLflow and Weights & Biases."""

from fbo_flower.trackers.callback import Callback, OptunaTracker, RoundInfo, StudyInfo
from fbo_flower.trackers.dashboards import MLflowTracker, TensorBoardTracker, WandbTracker

__all__ = [
    "Callback",
    "MLflowTracker",
    "OptunaTracker",
    "RoundInfo",
    "StudyInfo",
    "TensorBoardTracker",
    "WandbTracker",
]
