import numpy as np
import pytest

from fbo_flower.errors import NumericalError
from fbo_flower.numerics.linalg import JITTERS, cholesky, factors, solve, square_root


@pytest.fixture
def matrix():
    a = np.random.default_rng(0).standard_normal((12, 12))
    return a @ a.T + np.eye(12)


def test_factors_solutions_inverse_and_determinant_agree_with_numpy_and_need_no_jitter(matrix):
    b, before = np.random.default_rng(1).standard_normal((12, 3)), matrix.copy()
    factor = cholesky(matrix)
    np.testing.assert_array_equal(matrix, before)
    np.testing.assert_allclose(factor.lower, np.linalg.cholesky(matrix), atol=1e-12)
    assert factor.jitter == 0.0
    np.testing.assert_allclose(factor.solve(b), np.linalg.solve(matrix, b), atol=1e-10)
    np.testing.assert_allclose(factor.lower @ factor.solve_lower(b), b, atol=1e-10)
    np.testing.assert_allclose(factor.lower.T @ factor.solve_lower(b, transposed=True), b, atol=1e-10)
    np.testing.assert_allclose(factor.inverse(), np.linalg.inv(matrix), atol=1e-10)
    np.testing.assert_array_equal(factor.inverse(), factor.inverse().T)
    assert factor.log_determinant() == pytest.approx(np.linalg.slogdet(matrix)[1])


def test_of_many_matrices_only_the_singular_one_gets_jitter():
    good, b = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([[1.0, 2.0], [1.0, 1.0], [3.0, 0.0]])
    singular = np.ones((2, 2)) - 1e-12 * np.eye(2)
    matrices = np.array([good, singular, good])
    lower, found = factors(np.tril(matrices)), solve(matrices, b)
    np.testing.assert_allclose(lower[0] @ lower[0].T, good, rtol=1e-14)
    np.testing.assert_array_equal(lower[1], cholesky(singular).lower)
    assert 0.0 < cholesky(1e6 * singular).jitter <= 1e6 * JITTERS[1], "in its own scale"
    for i in range(3):
        np.testing.assert_array_equal(found[i], solve(matrices[i : i + 1], b[i : i + 1])[0])
        np.testing.assert_allclose(matrices[i] @ found[i], b[i], atol=1e-6)


def test_entries_that_are_not_finite_and_negative_eigenvalues_are_errors_that_say_what_to_try(matrix):
    with pytest.raises(NumericalError, match="noise variance"):
        cholesky(np.diag([1.0, -1.0]))
    for bad in (np.nan, np.inf):
        matrix[3, 2] = matrix[2, 3] = bad
        with pytest.raises(NumericalError, match="2 of 144"):
            cholesky(matrix)
    with pytest.raises(NumericalError, match="finite"):
        factors(np.array([np.eye(2), np.full((2, 2), np.nan)]))


def test_a_square_root_keeps_the_covariance_and_drops_empty_directions():
    root = np.random.default_rng(1).standard_normal((6, 3))
    found = square_root(root @ root.T)
    assert found.shape == (6, 3)
    np.testing.assert_allclose(found @ found.T, root @ root.T, atol=1e-12)


def test_nothing_factorises_to_nothing():
    factor = cholesky(np.zeros((0, 0)))
    assert factor.solve(np.zeros(0)).shape == (0,)
    assert factor.solve_lower(np.zeros((0, 3))).shape == (0, 3)
    assert factor.inverse().shape == (0, 0)
    assert factor.log_determinant() == 0.0
