"""Problems for restrictive federated model selection: sites, roles, bags and learners.

The sites are the agents. One is the openbox, one the lockbox, the others are curators; an algorithm without
roles sees agents that each tune a learner on their own rows. 80 % of a site's rows, class by class, are
its inbag, the others its outbag. Neither depends on the roles, so that results for all roles can be compared.

`FiveSites` splits a data set into five sites, as in the paper's semi-simulation [Sun2019, section 4.3]; the
one here is Wisconsin breast cancer, bundled with scikit-learn.

References
----------
[Sun2019] Sun et al. High dimensional restrictive federated model selection with multi-objective Bayesian
optimization over shifted distributions. IntelliSys 2019, sections 2.1, 4.3 and 5.1.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.clients.site import Bag, SiteData, SiteObjective
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.threads import limit_new_libraries, single_thread
from fbo_flower.simulation.partitioners import clustered, stratified_random, train_validation
from fbo_flower.simulation.problems.base import Config, Problem
from fbo_flower.simulation.problems.learners import MAX_TREES, MIN_TREES, Learner, make_learner
from fbo_flower.space.space import SearchSpace

OPENBOX, CURATOR, LOCKBOX = "openbox", "curator", "lockbox"
INBAG_SHARE = 0.8
NUM_FOLDS = 10
NUM_SITES = 5


@dataclass(frozen=True)
class SitesProblem(Problem):
    """Cross-validated accuracy of a learner on each site's inbag; deterministic.

    Attributes
    ----------
    learner : the learner whose hyperparameters are tuned
    openbox, lockbox : numbers of the sites with these roles; all others are curators
    class_weight : also tune the weight of the positive class
    max_trees : largest number of trees of a forest; the paper uses 5000
    """

    learner: Literal["elastic-net", "svm", "forest"] = "elastic-net"
    openbox: int = 0
    lockbox: int = 1
    class_weight: bool = False
    max_trees: int = MAX_TREES

    metric: ClassVar[str] = "cross-validated accuracy"
    default_agents: ClassVar[int] = 5
    max_agents: ClassVar[int | None] = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("openbox", "lockbox"):
            self.expect(
                option,
                0 <= getattr(self, option) < self.default_agents,
                f"a site from 0 to {self.default_agents - 1}",
            )
        self.expect("lockbox", self.lockbox != self.openbox, "another site than the openbox")
        self.expect("max_trees", self.max_trees > MIN_TREES, f"more than {MIN_TREES}")

    @abstractmethod
    def rows(self, path: str) -> tuple[Bag, ...]:
        """Return all rows of every site: features `(n, d)`, NaN for missing values, and labels 0 or 1.

        Parameters
        ----------
        path : what `path()` returns
        """

    def path(self) -> str:
        """Return the path of the data file; "": the data are in scikit-learn."""
        return ""

    def role(self, partition: int) -> str:
        """Return "openbox", "curator" or "lockbox"."""
        self.check_partition(partition)
        return {self.openbox: OPENBOX, self.lockbox: LOCKBOX}.get(partition, CURATOR)

    def check_data(self) -> None:
        """Raise ConfigError if the data are missing or the openbox cannot train models on its rows."""
        counts = np.bincount(self.site(self.openbox).inbag.y, minlength=2)
        if counts.min() < 2:
            usable = [k for k in range(self.default_agents) if self.can_train(k)]
            raise ConfigError(
                f"{self.name}: openbox: expected a site whose inbag has two rows or more of both classes "
                f"({', '.join(map(str, usable)) or 'there is none'}), got {self.openbox} with {counts[0]} "
                f"negative and {counts[1]} positive rows"
            )

    def can_train(self, partition: int) -> bool:
        """Return whether a site has the rows of both classes that an openbox needs."""
        return bool(np.bincount(self.site(partition).inbag.y, minlength=2).min() >= 2)

    def site(self, partition: int) -> SiteData:
        """Return a site's rows."""
        return _site(self, partition, self.path())

    def site_objective(self) -> SiteObjective:
        """Return the objective that trains and judges models on the rows of the site `context.partition`."""
        return _site_objective(self)

    @property
    def space(self) -> SearchSpace:
        return self.make_learner().space

    def make_learner(self) -> Learner:
        """Return the learner that the options describe."""
        return make_learner(self.learner, self.class_weight, self.max_trees)

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        return self.true_value(config, context.partition)

    def true_value(self, config: Config, partition: int) -> float:
        self.check_partition(partition)
        return 1.0 - self.site_objective().cross_validate(config, self.site(partition).inbag)


@lru_cache(maxsize=32)
def _site_objective(problem: SitesProblem) -> SiteObjective:
    return SiteObjective(
        problem.make_learner().make_model,
        lambda context: problem.site(context.partition),
        folds=NUM_FOLDS,
        seed=problem.seed,
    )


@lru_cache(maxsize=256)
def _site(problem: SitesProblem, partition: int, path: str) -> SiteData:
    x, y = problem.rows(path)[partition]
    rng = generator(problem.seed, problem.name, "bags", partition)
    inbag, outbag = train_validation(y, INBAG_SHARE, rng)
    return SiteData(Bag(x[inbag], y[inbag]), Bag(x[outbag], y[outbag]))


def bag(x: NDArray[np.float64], y: NDArray[np.intp]) -> Bag:
    """Return read-only rows, because all evaluations of a process share them."""
    x.flags.writeable = y.flags.writeable = False
    return Bag(x, y)


@dataclass(frozen=True)
class FiveSites(SitesProblem):
    """A data set that is split into five sites.

    Attributes
    ----------
    split : "drc": by clusters, so that features and prevalence differ between sites; "srs": at random
    variance : share of variance that the principal components for "drc" keep; the paper uses .1 and .5
    """

    split: Literal["drc", "srs"] = "drc"
    variance: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expect("variance", 0 < self.variance < 1, "a number between 0 and 1")

    @abstractmethod
    def data(self, path: str) -> Bag:
        """Return all rows, before the split into sites."""

    def rows(self, path: str) -> tuple[Bag, ...]:
        return _split(type(self), self.seed, self.split, self.variance, path)


@dataclass(frozen=True)
class BreastCancerSites(FiveSites):
    """Benign (1) or malignant: 569 rows of 30 features."""

    openbox: int = 1
    lockbox: int = 2

    name: ClassVar[str] = "breast-cancer-5sites"

    def data(self, path: str) -> Bag:
        from sklearn.datasets import load_breast_cancer

        x, y = load_breast_cancer(return_X_y=True)
        return bag(np.array(x, dtype=np.float64), np.array(y, dtype=np.intp))


@lru_cache(maxsize=16)
def _split(problem: type[FiveSites], seed: int, split: str, variance: float, path: str) -> tuple[Bag, ...]:
    x, y = problem(NUM_SITES, seed).data(path)
    rng = generator(seed, problem.name, "sites", split)
    if split == "srs":
        parts: list[NDArray[np.intp]] = stratified_random(y, NUM_SITES, rng)
    else:
        with single_thread():  # rounding that depends on threads would move rows between clusters
            import sklearn.mixture  # noqa: F401  # loads libraries that the next line limits

            limit_new_libraries()
            parts = clustered(x, y, NUM_SITES, variance, rng)
    return tuple(bag(x[part], y[part]) for part in parts)
