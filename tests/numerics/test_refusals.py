"""Arguments that do not fit are refused with ConfigError, which names them: a row a refusal."""

import math
from fractions import Fraction

import numpy as np
import pytest

from fbo_flower.errors import ConfigError
from fbo_flower.numerics import discrete_noise, privacy, seeding, slots
from fbo_flower.numerics.acquisition import batch, entropy_search, feasible, hypervolume, proposals
from fbo_flower.numerics.acquisition import expected_improvement as ei
from fbo_flower.numerics.acquisition import knowledge_gradient as kg
from fbo_flower.numerics.aggregation import agreement, bures, portfolio, rank_weights
from fbo_flower.numerics.bandits import elimination, hct, partition, racing
from fbo_flower.numerics.optim import maximise, sobol
from fbo_flower.numerics.surrogates import fitting, gp, pivots, rff, transforms
from fbo_flower.numerics.surrogates import shared_hyperparameters as shared
from fbo_flower.simulation.problems import table

ZEROS, ONES, EYE, RNG, NAN = np.zeros, np.ones, np.eye, np.random.default_rng(0), np.array([math.nan])
ACQUISITION = kg.BatchKnowledgeGradient(ZEROS(10), EYE(10), 0.1, ZEROS((4, 2)))
DRAW = discrete_noise.uniform_from(RNG)
H = gp.Hyperparameters("rbf", ONES(2), 1.0, 0.1)
FEATURES = rff.draw_features(6, 0.4, 2, RNG)
INCREMENT = pivots.Increment(EYE(2), ONES(2))
CUBE = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
LIMIT = 2**28
OWN = np.arange(24.0).reshape(3, 8)


def tree(depth, index):
    cells = (np.array(column, dtype=np.int64) for column in (depth, index))
    return racing.grown_tree(racing.RacingOptions(1), *cells, ZEROS(len(depth)))


def barycenter(covariances, weights=None, start=None):
    return bures.barycenter(covariances, weights, start=start)


def account(*rows):
    return privacy.Account.from_json({"releases": list(rows)})


MANY = [[1.0 + i, 1] for i in range(privacy.MOST_ENTRIES + 1)]
ROWS = [
    # -- acquisition
    *((message, feasible.Goal.of, OWN, objectives, np.array(least)) for message, objectives, least in (
        ("limits", [0], [-np.inf] * 2), ("limits", [0], [np.nan, 0.0, 0.0]), ("limits", [0], [0, np.inf, 0]),
        *(("objectives", which, [-np.inf] * 3) for which in ([1, 1], [3], [])),
    )),
    ("finite", hypervolume.hypervolume, np.array([[np.nan, 0.0]]), ZEROS(2)),
    ("reference: expected 2", hypervolume.hypervolume, ZEROS((1, 2)), ZEROS(3)),
    ("reference", hypervolume.free_boxes, ZEROS((1, 2)), np.array([0.0, -np.inf])),
    ("objectives: expected 1 to 3, got 4", hypervolume.free_boxes, ZEROS((1, 4)), ZEROS(4)),
    *(("slots: expected entries", slots.write, np.array([[0.1, entry]]), np.array([0]), 64)
      for entry in (5.0, np.nan, -np.inf)),
    ("up to 2 agents and 10 points", batch.maximise_batch, ACQUISITION, ZEROS((2, 9)), 1.0, 1, RNG),
    ("beta", batch.maximise_batch, ACQUISITION, ZEROS((2, 10)), -1.0, 1, RNG),
    ("noise variance", entropy_search.max_value_entropy, ZEROS(1), ONES(1), -1.0, ZEROS(1)),
    ("factor", entropy_search.BatchMaxValueEntropy, ZEROS(3), EYE(2), 0.1, ZEROS(1), 2),
    ("factor", ei.BatchExpectedImprovement, ZEROS(3), EYE(2), 0.0, ZEROS((2, 1))),
    ("factor", kg.knowledge_gradient_from_factor, ZEROS(3), EYE(2), 0.1),
    ("noise", kg.knowledge_gradient_from_factor, ZEROS(3), EYE(3), -0.1),
    ("points", kg.knowledge_gradient_from_factor, ZEROS(0), EYE(0), 0.1),
    ("factor", kg.BatchKnowledgeGradient, ZEROS(3), EYE(2), 0.1, ZEROS((2, 1))),
    ("noise variance", kg.BatchKnowledgeGradient, ZEROS(3), EYE(3), -0.1, ZEROS((2, 1))),
    ("draws", ei.centred_draws, 1, 2, RNG),
    ("losses", proposals.plan_improvement, ZEROS((0, 2)), ZEROS(0)),
    ("finite", proposals.plan_improvement, ZEROS((1, 2)), NAN),
    ("incumbent: expected one of mean, observed", proposals.plan_improvement, EYE(2), ZEROS(2), "best"),
    ("weights", proposals.draw_weights, 0, RNG),
    ("finite", proposals.normalise, np.array([[np.inf, 0.0]])),
    # -- aggregation
    ("at least 2 agents", agreement.agreement, [INCREMENT]),
    (r"expected \(N, S, S\)", barycenter, ZEROS((1, 2, 3))),
    ("finite", barycenter, np.full((2, 3, 3), np.nan)),
    *(("weights", barycenter, EYE(3)[None], weights) for weights in (ONES(3), -ONES(1), ZEROS(1))),
    ("start", barycenter, EYE(3)[None], None, EYE(2)),
    (r"expected means \(N, S\)", bures.reliability, ZEROS(3), ZEROS((1, 3, 3))),
    (r"expected \(S, 3, 3\)", rank_weights.discordance, ZEROS((1, 2, 2)), ZEROS(3)),
    ("bandwidth", rank_weights.kernel_weights, ZEROS(2), 0.0),
    ("boxes", portfolio.Boxes.halve, 0, 2),
    # -- bandits
    *((name, lambda change: elimination.Constants(**{"budget": 10, "delta": 0.1} | change), {name: value})
      for name, value in (("budget", 0), ("delta", 0.0), ("nu", 0.0), ("rho", 1.0), ("c1", 1e-9))),
    ("h0", elimination.transition_depth, 1.0, 0.5, 0.1, "floor"),
    *(("gap, nu, rho", elimination.transition_depth, *given)
      for given in ((1.0, 0.5, -0.1), (0.0, 0.5, 0.1), (1.0, 1.0, 0.1))),
    ("counts", elimination.merge, [[0.1]], [[1, 2]]),
    ("trim", elimination.merge, [[0.1]], [[1]], 0.6),
    ("rho", hct.HCTOptions, 1, 2, 1.0, 1.0),
    ("arity", hct.HCTOptions, 5, 32),
    ("depth", partition.cell, 53, 0, 1),
    *(("index", partition.cell, 3, index, 2) for index in ([8], [-1], [1.0])),
    ("arity", partition.cell, 1, 0, 2, 3),
    ("dim", partition.max_depth, 0),
    ("depth", partition.number, [0, 63], 0),
    ("children", partition.children, [2**61]),
    ("nu, rho", lambda: racing.RacingOptions(1, nu=1.0)),
    ("answer", racing.Gathering(racing.RacingOptions(1), 1000).result),
    *(("tree", tree, *cells) for cells in (
        ([0, 1, 1, 3, 3], [0, 0, 1, 0, 1]), ([0, 1, 1, 1, 1], [0, 0, 1, 0, 1]), ([0, 1], [0, 0]), ([], []),
    )),
    # -- optim
    ("candidates", maximise.maximise, [FEATURES], ZEROS((1, 0, 2)), np.arange(2)),
    (r"at most 5 points per axis in 5 dimensions, got 10: .* 100000 points takes 80 GB, .* up to 5792",
     sobol.mesh, 10, 5, LIMIT),
    ("num_points: expected at most 5792 points, got 5793", sobol.spread, 5793, 3, LIMIT, RNG),
    (r"corners of the cube, \[1.0, 1.0\] is missing", table.DelaunayInterpolant, CUBE[:3], ZEROS(3)),
    ("D from 1 to 3", table.DelaunayInterpolant, ZEROS((3, 4)), ZEROS(3)),
    ("finite", table.DelaunayInterpolant, CUBE, np.array([0.0, 1.0, np.nan, 0.0])),
    # -- surrogates
    *((r"expected x \(B, n, F\)", fitting.fit, ZEROS(x), ZEROS(y), "rbf")
      for x, y in (((3, 4), (3, 4)), ((2, 3, 1), (2, 4)))),
    ("positive", gp.Hyperparameters, "rbf", np.array([0.1, -0.1]), 1.0, 0.1),
    ("kernel", gp.Hyperparameters, "cubic", ONES(1), 1.0, 0.1),
    ("shape", gp.Hyperparameters, "rbf", ONES((1, 1)), 1.0, 0.1),
    *(("data", call, ZEROS(shape), ZEROS(2), H)
      for call in (gp.posterior, gp.log_marginal_likelihood) for shape in ((3, 2), (2, 4))),
    *(("variances", gp.posterior, ZEROS((7, 2)), ZEROS(7), H, variances)
      for variances in (ZEROS(6), np.full(7, -1.0), np.full(7, np.nan))),
    ("rbf, matern52", gp.kernel, "linear", ZEROS((1, 2)), ZEROS((1, 2)), ONES(2)),
    *(("cut: expected at least 1e-12", pivots.choose_pivots, CUBE, H, c) for c in (0.0, 1e-13, 1.0, np.nan)),
    (r"points: expected \(S, 2\)", pivots.choose_pivots, ZEROS((4, 3)), H),
    ("increment", pivots.Increment, EYE(3), ZEROS(2)),
    ("at least one", pivots.pool, []),
    *(("expected", rff.RandomFeatures, *parts) for parts in (
        (ZEROS((3, 2)), ZEROS(2)), (ZEROS(3), ZEROS(3)), (ZEROS((0, 2)), ZEROS(0)),
        (np.full((3, 2), np.nan), ZEROS(3)), (ZEROS((3, 2), dtype=np.float32), ZEROS(3)),
    )),
    *(("lengthscales", rff.draw_features, 5, scales, 2, RNG) for scales in (0.0, -1.0, np.nan, ONES(3))),
    ("points", FEATURES, ZEROS((4, 3))),
    ("regression", rff.sample_weights, [FEATURES], ZEROS((1, 4, 2)), ZEROS((1, 3)), 0.1, [RNG]),
    ("noise_variance", rff.sample_weights, [FEATURES], ZEROS((1, 4, 2)), ZEROS((1, 4)), 0.0, [RNG]),
    (r"shape \(F,\)", shared.log_likelihoods, ZEROS((3, 2)), ZEROS(3), "rbf", ONES(1)),
    (r"\(540,\)", shared.estimate, ZEROS(3)),
    ("standardise, rank, clip, winsorise", transforms.transform, ZEROS(2), "log"),
    # -- seeds, noise, privacy
    *(("seed", seeding.generator, seed, 0) for seed in (-1, 2**128)),
    *(("key", seeding.generator, 0, key) for key in (True, 1.5, None, b"a", [])),
    *((r"scale|variance|epsilon", call, *before, value, *after)
      for value in (0, Fraction(-1, 2), 0.5, True)
      for call, before, after in (
          (discrete_noise.discrete_laplace, (), (DRAW,)), (discrete_noise.discrete_gaussian, (), (DRAW,)),
          (discrete_noise.noisy_count, (1, 2), (DRAW,)),
      )),
    *((r"count|n:", discrete_noise.noisy_count, count, n, Fraction(1), DRAW)
      for count, n in ((-1, 5), (6, 5), (1.0, 5), (1, 5.0))),
    *(("privacy", privacy.sampled_epsilon, z, q, 1, 1e-3)
      for z, q in ((-1.0, 0.5), (math.nan, 0.5), (1.0, 0.0), (1.0, 1.1))),
    *(("delta", privacy.gaussian_epsilon, 1.0, delta) for delta in (0.0, 1.0, -1.0, math.nan)),
    *(("account", account, row) for row in (
        None, [1.0, 1.0, 1], ["1", 1], [1.0, 1.0], [1.0, True], [True, 1], [1.0, 0],
        [1.0, privacy.MOST_RELEASES + 1], [-1.0, 1], [1e-7, 1], [math.nan, 1], [10**400, 1],
    )),
    *(("account", privacy.Account.from_json, value)
      for value in ([], {"releases": {}}, {"releases": [], "more": 1})),
    ("twice", account, [1.0, 1], [1, 2]),
    ("at most 64", account, *MANY),
    ("different noise multipliers", account(*MANY[:-1]).add, 0.5),
    ("releases", privacy.Account().add(1.0, privacy.MOST_RELEASES).add, 1.0),
    *(("account", privacy.Account().add, z, count) for z, count in ((-1.0, 1), (math.nan, 1), (1.0, 0))),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{getattr(row[1], '__name__', '')}: {row[0]}"[:60])
def test_arguments_that_do_not_fit_are_refused_by_name(row):
    message, call, *arguments = row
    with pytest.raises(ConfigError, match=message):
        call(*arguments)
