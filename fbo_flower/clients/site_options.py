"""What the operator of a site allows, in `node_config`, and what its answers have cost.

The account covers all studies: a server cannot get a new budget by starting a new study. It is in the agent's
memory: a journal keeps it permanently; without a journal it is lost when the SuperNode stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, Self, cast

from fbo_flower.algorithms.options import check_number
from fbo_flower.algorithms.rfms.site import MAX_MODEL_BYTES
from fbo_flower.clients.memory import Memory
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.discrete_noise import noisy_count


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


_ACCOUNT = "account"


@dataclass(frozen=True)
class Account:
    """Number of answers and total epsilon for each bag, "inbag" or "outbag"."""

    answers: dict[str, int] = field(default_factory=dict)
    epsilon: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def read(memory: Memory) -> Account:
        """Load the account from an agent's memory."""
        note = memory.note(_ACCOUNT)
        answers, epsilon = (cast(dict[str, float], note.get(name, {})) for name in ("answers", "epsilon"))
        return Account({split: int(count) for split, count in answers.items()}, dict(epsilon))

    def write(self, memory: Memory) -> None:
        """Store the account in an agent's memory."""
        memory.put_note(_ACCOUNT, {"answers": self.answers, "epsilon": self.epsilon})

    def charge(self, split: str, epsilon: float) -> Account:
        """Return the account after one more answer; the epsilons of answers about the same rows are added."""
        return replace(
            self,
            answers={**self.answers, split: self.answers.get(split, 0) + 1},
            epsilon={**self.epsilon, split: self.epsilon.get(split, 0.0) + epsilon},
        )


def noisy_rate(rate: float, num_rows: int, epsilon: float, uniform: Callable[[int], int]) -> float:
    """Return a misclassification rate with discrete Laplace noise on the count of wrong rows, in [0, 1].

    One row more or less wrong changes the count by 1, so `P(k) ~ exp(-epsilon |k|)` makes the answer
    epsilon-differentially private for the replacement of one row [Canonne2020]. The count is an integer and
    the noise is drawn without floating point: the bits of the answer depend on the noisy count alone.
    `num_rows` is sent without noise.

    Parameters
    ----------
    uniform : `uniform(n)` returns a uniform integer in `[0, n)`; `secrets.randbelow` on devices

    References
    ----------
    [Canonne2020] Canonne, Kamath, Steinke: The discrete Gaussian for differential privacy, NeurIPS 2020.
    """
    return noisy_count(round(rate * num_rows), num_rows, Fraction(epsilon), uniform) / num_rows
