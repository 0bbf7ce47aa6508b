"""`SiteOptions`: what the operator of a site allows, in `node_config`; the server cannot change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from fbo_flower.algorithms.options import check_number
from fbo_flower.algorithms.rfms.site import MAX_MODEL_BYTES
from fbo_flower.errors import ConfigError


@dataclass(frozen=True)
class SiteOptions:
    """The options of a site's operator; each is a key of `node_config`.

    Parameters
    ----------
    allow_models_with_data : openbox: send models that contain rows of its data, for example support vectors
    max_model_bytes : largest packed model that is sent or judged
    models : openbox: directory for the final models, in the format in which they are sent; "": do not save
    trusted : full names of types, separated by commas, that a model may contain in addition to the types
        that are known to be harmless
    model_seconds, model_memory_bytes : time and memory that another site's model may use to load and predict
    in_process : judge models in this process, without these two limits; for simulations
    require_confinement : judge no model unless the child process has no network, files and processes
    query_budget : curator, lockbox: largest number of answers in all studies together, counted separately
        for the search and for the final report; 0: no limit
    lockbox_answers : lockbox: number of final lists of models (manifests) that it judges in its lifetime
    answer_noise_epsilon : curator, lockbox: add discrete Laplace noise to the number of wrong rows of
        every answer, which must be a misclassification rate; 0: no noise
    """

    allow_models_with_data: bool = False
    max_model_bytes: int = MAX_MODEL_BYTES
    models: str = ""
    trusted: str = ""
    model_seconds: float = 60.0
    model_memory_bytes: int = 2 * 2**30
    in_process: bool = False
    require_confinement: bool = False
    query_budget: int = 200
    lockbox_answers: int = 1
    answer_noise_epsilon: float = 0.0

    def __post_init__(self) -> None:
        for name in ("allow_models_with_data", "in_process", "require_confinement"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name}: expected true or false, got {getattr(self, name)!r}")
        for name in ("models", "trusted"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"{name}: expected a string, got {getattr(self, name)!r}")
        check_number("model_seconds", self.model_seconds, 1e-3)
        check_number("model_memory_bytes", self.model_memory_bytes, 1, integer=True)
        check_number("max_model_bytes", self.max_model_bytes, 1, MAX_MODEL_BYTES, integer=True)
        check_number("query_budget", self.query_budget, 0, integer=True)
        check_number("lockbox_answers", self.lockbox_answers, 1, integer=True)
        check_number("answer_noise_epsilon", self.answer_noise_epsilon, 0)

    @property
    def trusted_types(self) -> tuple[str, ...]:
        """Return the names in `trusted` as a tuple."""
        return tuple(name.strip() for name in self.trusted.split(",") if name.strip())

    @classmethod
    def defaults(cls) -> dict[str, object]:
        """Return option -> its default value."""
        return {f.name: f.default for f in fields(cls)}

    @classmethod
    def read(cls, node_config: Mapping[str, Any], defaults: Mapping[str, Any]) -> Self:
        """Return the options in `node_config`; `defaults` replace those that it does not set."""
        values = {**defaults, **node_config}
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})
