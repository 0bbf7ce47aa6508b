"""What the operator of a site decides, in `node_config`; no server can change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from fbo_flower.algorithms.options import check_number
from fbo_flower.algorithms.rfms.site import MAX_MODEL_BYTES
from fbo_flower.errors import ConfigError


@dataclass(frozen=True)
class SiteOptions:
    """The operator's options; each is a key of `node_config`.

    Parameters
    ----------
    allow_models_with_data : openbox: ship models that hold rows of its data, as support vectors are
    max_model_bytes : size of a packed model up to which it is shipped, and judged
    models : openbox: directory in which the last models are saved, in the format in which they travel; "":
        they are not saved
    trusted : full names of types, separated by commas, that a model may hold beyond those known as harmless
    model_seconds, model_memory_bytes : what a model of another site may take to load and predict
    in_process : judge models in this process, without these two limits; for simulations
    require_confinement : judge no model unless the child process is denied network, files and processes
    query_budget : curator, lockbox: answers given in all, of the search and of the end apart, whatever the
        study; 0: no limit
    answer_noise_epsilon : curator, lockbox: Laplace noise of scale `1 / (n epsilon)` on every answer, which
        must be a misclassification rate over `n` rows; 0: none
    """

    allow_models_with_data: bool = False
    max_model_bytes: int = MAX_MODEL_BYTES
    models: str = ""
    trusted: str = ""
    model_seconds: float = 60.0
    model_memory_bytes: int = 2 * 2**30
    in_process: bool = False
    require_confinement: bool = False
    query_budget: int = 0
    answer_noise_epsilon: float = 0.0

    def __post_init__(self) -> None:
        for name in ("allow_models_with_data", "in_process", "require_confinement"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name}: expected true or false, got {getattr(self, name)!r}")
        for name in ("models", "trusted"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"{name}: expected a text, got {getattr(self, name)!r}")
        check_number("model_seconds", self.model_seconds, 1e-3)
        check_number("model_memory_bytes", self.model_memory_bytes, 1, integer=True)
        check_number("max_model_bytes", self.max_model_bytes, 1, MAX_MODEL_BYTES, integer=True)
        check_number("query_budget", self.query_budget, 0, integer=True)
        check_number("answer_noise_epsilon", self.answer_noise_epsilon, 0)

    @property
    def trusted_types(self) -> tuple[str, ...]:
        """Return the names in `trusted`."""
        return tuple(name.strip() for name in self.trusted.split(",") if name.strip())

    @classmethod
    def defaults(cls) -> dict[str, object]:
        """Return every option with its default."""
        return {f.name: f.default for f in fields(cls)}

    @classmethod
    def read(cls, node_config: Mapping[str, Any], defaults: Mapping[str, Any]) -> Self:
        """Return the operator's options, and `defaults` where the operator says nothing."""
        given = {**defaults, **node_config}
        return cls(**{f.name: given[f.name] for f in fields(cls) if f.name in given})
