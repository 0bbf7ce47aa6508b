"""Cholesky factors, with jitter where needed, through LAPACK, of one or many matrices; and the BFGS update.

For matrices of a few dozen rows the checks of `scipy.linalg` cost more than the computation, so LAPACK's
`potrf`, `potrs`, `potri` and `trtrs` are called directly. SciPy is imported at the first factorisation.
Notation: `A = L L^T`, `L` lower triangular.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from fbo_flower.errors import NumericalError
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.threads import limit_new_libraries

JITTERS = (0.0, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4)  # tried in turn, times the mean diagonal entry


@functools.cache
def lapack() -> ModuleType:
    """Return `scipy.linalg.lapack`, imported at the first call."""
    from scipy.linalg import lapack as module

    limit_new_libraries()
    return module


@dataclass(frozen=True)
class Factor:
    """The Cholesky factor `L` with `L L^T = A + jitter I`.

    Attributes
    ----------
    lower : `(n, n)`, zeros above the diagonal
    jitter : number added to the diagonal; 0 for a well-conditioned matrix
    """

    lower: Array
    jitter: float = 0.0

    def solve(self, b: Array) -> Array:
        """Return `A^-1 b` for `b` of shape `(n,)` or `(n, k)`."""
        if b.size == 0:
            return np.zeros_like(b)
        solution: Array = lapack().dpotrs(self.lower, b, lower=1)[0]
        return solution

    def solve_lower(self, b: Array, *, transposed: bool = False) -> Array:
        """Return `L^-1 b` for `b` of shape `(n,)` or `(n, k)`; its squared norm is `b^T A^-1 b`.

        With `transposed` it is `L^-T b`, which maps draws of `N(0, I)` to `N(0, A^-1)`.
        """
        if b.size == 0:
            return np.zeros_like(b)
        solution: Array = lapack().dtrtrs(self.lower, b, lower=1, trans=int(transposed))[0]
        return solution

    def inverse(self) -> Array:
        """Return `A^-1 (n, n)`, symmetric to the last bit."""
        if self.lower.size == 0:
            return self.lower.copy()
        lower: Array = lapack().dpotri(self.lower, lower=1)[0]
        inverse = lower + lower.T  # potri leaves the zeros above the diagonal
        inverse.flat[:: len(inverse) + 1] = lower.diagonal()
        return inverse

    def log_determinant(self) -> float:
        """Return `log |A|`."""
        return 2.0 * float(np.log(self.lower.diagonal()).sum())  # 2 sum_i log L_ii


def cholesky(matrix: Array) -> Factor:
    """Factorise a symmetric positive definite matrix with the smallest jitter that succeeds.

    Parameters
    ----------
    matrix : `(n, n)`, symmetric (only one triangle is read); `n` may be 0

    Raises
    ------
    NumericalError
        If an entry is not finite, or the matrix is not positive definite after the largest jitter.
    """
    n = len(matrix)
    if n == 0:
        return Factor(np.zeros((0, 0)))
    if not np.isfinite(matrix).all():
        count = int(np.count_nonzero(~np.isfinite(matrix)))
        raise NumericalError(
            f"cholesky: expected a finite matrix, got {count} of {matrix.size} entries that are not"
        )
    scale = float(matrix.diagonal().mean())
    for relative in JITTERS:
        jitter = relative * scale
        attempt = matrix if jitter == 0.0 else matrix + jitter * np.eye(n)
        lower, info = lapack().dpotrf(attempt.T, lower=1, clean=1)  # C order transposed is LAPACK's
        if info == 0:
            return Factor(lower, jitter)
    raise NumericalError(
        f"cholesky: a ({n}, {n}) matrix with mean diagonal {scale:.3g} is not positive definite "
        f"even with jitter {JITTERS[-1] * scale:.3g}; try a larger noise variance"
    )


def solve(matrices: Array, b: Array) -> Array:
    """Return `A^-1 b`, `(B, n)`, for positive definite `matrices (B, n, n)`; with jitter where needed."""
    return solve_factored(factors(matrices), b)


def factors(matrices: Array) -> Array:
    """Return lower Cholesky factors of `(B, n, n)`, reading only lower triangles; with jitter if needed."""
    try:
        lower = np.asarray(np.linalg.cholesky(matrices), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.array([_factor(matrix) for matrix in matrices])  # only the bad ones get jitter
    diagonals = lower.reshape(len(lower), -1)[:, :: lower.shape[1] + 1]
    if not np.isfinite(diagonals).all():
        raise NumericalError("cholesky: expected finite matrices, got entries that are not")
    return lower


def _factor(matrix: Array) -> Array:
    try:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        return cholesky(np.tril(matrix) + np.tril(matrix, -1).T).lower


def solve_factored(lower: Array, b: Array) -> Array:
    """Return `A^-1 b`, `(B, n)`, given the factors of `A`."""
    found = np.empty_like(b)
    if b.size == 0:
        return found
    for row in range(len(b)):  # LAPACK's upper factor is the transpose of ours: no copies
        found[row] = lapack().dpotrs(lower[row].T, b[row], lower=0)[0]
    return found


def invert_in_place(lower: Array) -> None:
    """Turn lower Cholesky factors `(B, n, n)` of `A` into `A^-1`, on and below their diagonals."""
    for factor in lower if lower.size else ():
        lapack().dpotri(factor.T, lower=0, overwrite_c=1)


def bfgs_update(h: Array, step: Array, change: Array, curvature: Array) -> Array:
    """Return the BFGS updates of inverse Hessian approximations [Nocedal & Wright 2006, Eq. 6.17].

    `H + (s^T y + y^T H y) s s^T / (s^T y)^2 - (H y s^T + s y^T H) / (s^T y)`, for every matrix by itself.

    Parameters
    ----------
    h : `(b, D, D)`, the `H`, symmetric
    step, change : `(b, D)`, the steps `s` and the changes `y` of the gradient of the minimised function
    curvature : `(b,)`, the products `s^T y`, positive
    """
    hy = (h @ change[:, :, None])[:, :, 0]
    s = step / curvature[:, None]
    factor = curvature + (change * hy).sum(axis=1)
    cross = hy[:, :, None] * s[:, None, :]
    updated: Array = (
        h + factor[:, None, None] * s[:, :, None] * s[:, None, :] - cross - cross.transpose(0, 2, 1)
    )
    return updated


def square_root(covariance: Array) -> Array:
    """Return `B (k, j)` with `B B^T` equal to the covariance, without directions of zero variance."""
    eigenvalues, vectors = np.linalg.eigh(covariance)
    keep = eigenvalues > 1e-12 * max(float(eigenvalues[-1]), 0.0)
    root: Array = vectors[:, keep] * np.sqrt(eigenvalues[keep])
    return root
