"""Tables of losses: every configuration of a design, evaluated once for each openbox.

All methods of RFMS are replayed on these tables. A table belongs to a problem with its options, a seed (of
the sites and their bags) and an openbox. It holds the cross-validated losses at the openbox, and how many
rows of each class the models misclassify in every site's bags. So it serves every choice of lockbox and
criteria other than the paper's. Models are fitted as in `SiteObjective`, but rows are imputed and
standardised, and for support vector machines their distances computed, once per table instead of once per
configuration.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.clients import Bag, splits
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.threads import limit_new_libraries, single_thread
from fbo_flower.simulation.problems import NUM_FOLDS, Learner, SitesProblem, make_problem, prepare
from fbo_flower.space import SearchSpace
from studies.experiment import Arrays, Job, job, load

NUM_CONFIGS = 320
CHUNK = 40
INBAG, OUTBAG = 0, 1


@dataclass(frozen=True)
class Key:
    """The identity of a table.

    Parameters
    ----------
    problem, seed, openbox : as `make_problem` takes them
    options : options of the problem, without its roles
    """

    problem: str
    seed: int
    openbox: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        options = "-".join(f"{name}={value}" for name, value in sorted(self.options.items()))
        return f"{self.problem}-{options}-seed={self.seed}-openbox={self.openbox}"


@dataclass(frozen=True)
class LossTable:
    """Losses of n configurations at S sites, with F folds; NaN for a configuration that failed.

    Parameters
    ----------
    points : `(n, D)`, in the unit cube of the problem's space
    fold_losses : `(n, F)`, losses at the openbox
    wrong : `(n, S, 2, 2)`, misclassified rows by site, bag (inbag, outbag) and class
    rows : `(S, 2, 2)`, number of rows by site, bag and class
    """

    points: Array
    fold_losses: Array
    wrong: Array
    rows: Array

    @property
    def local(self) -> Array:
        """Return `J_l (n,)`, the cross-validated loss at the openbox."""
        return np.asarray(self.fold_losses.mean(axis=1))

    @property
    def inbag(self) -> Array:
        """Return the loss on every site's inbag, `(n, S)`, which curators answer."""
        return self._rate(self.wrong[:, :, INBAG], self.rows[:, INBAG])

    @property
    def outbag(self) -> Array:
        """Return the loss on every site's outbag, `(n, S)`."""
        return self._rate(self.wrong[:, :, OUTBAG], self.rows[:, OUTBAG])

    @property
    def lockbox(self) -> Array:
        """Return the loss on all rows of every site, `(n, S)`, which a lockbox answers."""
        return self._rate(self.wrong.sum(axis=2), self.rows.sum(axis=1))

    def remote(self, curators: Sequence[int]) -> Array:
        """Return `J_r (n,)`, the curators' losses, weighted by their rows."""
        sites = list(curators)
        wrong = self.wrong[:, sites, INBAG].sum(axis=(1, 2))
        return np.asarray(wrong / self.rows[sites, INBAG].sum())

    @staticmethod
    def _rate(wrong: Array, rows: Array) -> Array:
        return np.asarray(wrong.sum(axis=-1) / rows.sum(axis=-1))


def keys(
    problem: str,
    seeds: Iterable[int],
    options: Mapping[str, Any] | None = None,
    openboxes: Iterable[int] | None = None,
) -> list[Key]:
    """Return the tables of a problem, one for each openbox that has rows of two classes."""
    found = []
    for seed in seeds:
        chosen = _problem(problem, seed, options or {})
        wanted = range(chosen.num_agents) if openboxes is None else openboxes
        found += [Key(problem, seed, k, dict(options or {})) for k in wanted if chosen.can_train(k)]
    return found


def jobs(key: Key, num_configs: int = NUM_CONFIGS) -> list[Job]:
    """Return the jobs of a table, each with `CHUNK` configurations."""
    return [
        job(tabulate, key, start, stop=min(start + CHUNK, num_configs), num_configs=num_configs)
        for start in range(0, num_configs, CHUNK)
    ]


def load_table(directory: str | os.PathLike[str], key: Key, num_configs: int = NUM_CONFIGS) -> LossTable:
    """Return a table whose jobs are all finished."""
    parts = [load(Path(directory), tabulate, key, start) for start in range(0, num_configs, CHUNK)]
    columns = {
        name: np.concatenate([part[name] for part in parts]) for name in ("points", "fold_losses", "wrong")
    }
    return LossTable(rows=parts[0]["rows"], **columns)


def problem_of(key: Key) -> SitesProblem:
    """Return the problem of a table."""
    return _problem(key.problem, key.seed, key.options)


def design(space: SearchSpace, num_configs: int) -> Array:
    """Return the configurations of every table of a space, `(n, D)`."""
    return space.snap(sobol(num_configs, space.dimension, generator(0, "rfms-tables")))


# -- a job -------------------------------------------------------------------------------------


def tabulate(key: Key, start: int, stop: int, num_configs: int) -> Arrays:
    """Evaluate configurations `start .. stop - 1` of the design with one openbox."""
    with single_thread():
        import sklearn.linear_model
        import sklearn.svm  # noqa: F401  # load libraries that are limited below

        limit_new_libraries()
        chosen = problem_of(key)
        learner, space = chosen.make_learner(), chosen.space
        points = design(space, num_configs)[start:stop]
        classifier = partial(_on_distances, learner) if chosen.learner == "svm" else learner.make_classifier
        folds, whole, bags = _prepared(chosen, key.openbox)
        rows = np.array([[_counts(bag.y) for bag in site] for site in bags])
        losses = np.full((len(points), len(folds)), np.nan)
        wrong = np.full((len(points), *rows.shape), np.nan)
        for i, point in enumerate(points):
            config = space.decode(point)
            try:
                losses[i] = [_fold_loss(classifier, config, train, test) for train, test in folds]
                model = classifier(config).fit(*whole)
            except (ValueError, ArithmeticError):  # this configuration counts as failed
                losses[i] = np.nan
                continue
            wrong[i] = [[_counts(bag.y[model.predict(bag.x) != bag.y]) for bag in site] for site in bags]
    return {"points": points, "fold_losses": losses, "wrong": wrong, "rows": rows.astype(np.float64)}


def _problem(name: str, seed: int, options: Mapping[str, Any]) -> SitesProblem:
    problem = make_problem(name, None, seed, options)
    assert isinstance(problem, SitesProblem), name
    return problem


def _prepared(
    problem: SitesProblem, openbox: int
) -> tuple[list[tuple[Bag, Bag]], Bag, list[tuple[Bag, Bag]]]:
    """Return the folds, the openbox's inbag and all sites' bags, prepared by the rows a model may see."""
    x, y = problem.site(openbox).inbag
    folds = []
    for train, test in splits(y, NUM_FOLDS, problem.seed):
        seen = _preparation(problem, x[train])
        folds.append((Bag(seen(x[train]), y[train]), Bag(seen(x[test]), y[test])))
    seen = _preparation(problem, x)
    sites = [problem.site(k) for k in range(problem.num_agents)]
    bags = [(Bag(seen(inbag.x), inbag.y), Bag(seen(outbag.x), outbag.y)) for inbag, outbag in sites]
    return folds, Bag(seen(x), y), bags


def _preparation(problem: SitesProblem, x: Array) -> Callable[[Array], Array]:
    """Return the function that prepares rows for a classifier trained on `x`."""
    from sklearn.metrics.pairwise import euclidean_distances

    fitted = prepare(x)
    if problem.learner != "svm":
        return lambda rows: np.asarray(fitted.transform(rows))
    trained = fitted.transform(x)
    return lambda rows: np.asarray(euclidean_distances(fitted.transform(rows), trained, squared=True))


@dataclass(frozen=True)
class _OnDistances:
    """A support vector machine that takes squared distances to its training rows."""

    machine: Any

    def fit(self, distances: Array, y: npt.NDArray[np.intp]) -> _OnDistances:
        self.machine.set_params(kernel="precomputed").fit(self._kernel(distances), y)
        return self

    def predict(self, distances: Array) -> npt.NDArray[np.intp]:
        return np.asarray(self.machine.predict(self._kernel(distances)))

    def _kernel(self, distances: Array) -> Array:
        return np.asarray(np.exp(-self.machine.gamma * distances))


def _on_distances(learner: Learner, config: Mapping[str, object]) -> _OnDistances:
    return _OnDistances(learner.make_classifier(config))


def _fold_loss(
    classifier: Callable[[Mapping[str, object]], Any], config: Mapping[str, object], train: Bag, test: Bag
) -> float:
    model = classifier(config).fit(*train)
    return float(np.mean(model.predict(test.x) != test.y))


def _counts(y: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    return np.bincount(y, minlength=2)
