"""Callbacks of running studies, and ready ones for Optuna, TensorBoard, MLflow and Weights & Biases."""

from fbo_flower.trackers.callback import Callback, RoundInfo, StudyInfo
from fbo_flower.trackers.mlflow import MLflowTracker
from fbo_flower.trackers.optuna import OptunaTracker
from fbo_flower.trackers.tensorboard import TensorBoardTracker
from fbo_flower.trackers.wandb import WandbTracker

__all__ = [
    "Callback",
    "MLflowTracker",
    "OptunaTracker",
    "RoundInfo",
    "StudyInfo",
    "TensorBoardTracker",
    "WandbTracker",
]
