"""Callbacks of running studies, and ready ones for Optuna, TensorBoard, MLflow and Weights & Biases."""

from fbo_flower.trackers.callback import Callback, RoundInfo, StudyInfo
from fbo_flower.trackers.dashboards import MLflowTracker, TensorBoardTracker, WandbTracker
from fbo_flower.trackers.optuna import OptunaTracker

__all__ = [
    "Callback",
    "MLflowTracker",
    "OptunaTracker",
    "RoundInfo",
    "StudyInfo",
    "TensorBoardTracker",
    "WandbTracker",
]
