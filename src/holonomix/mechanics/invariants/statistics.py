"""Statistics of correlated samples: autocorrelation time, effective sample size, split R-hat.

A sample has the shape `(draws,)` for one chain or `(chains, draws)` for an ensemble; further axes are separate
observables. Plain NumPy, for use after a run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.errors import InputError
from ...core.types import ArrayLike


def autocovariance(x: ArrayLike) -> np.ndarray:
    """The autocovariance of each chain along the draws, lag 0 first, divided by the number of draws (by FFT)."""
    x = _chains(x)
    draws = x.shape[1]
    centered = x - x.mean(axis=1, keepdims=True)
    size = 1 << (2 * draws - 1).bit_length()
    spectrum = np.fft.rfft(centered, size, axis=1)
    return np.fft.irfft(spectrum * np.conj(spectrum), size, axis=1)[:, :draws] / draws


def autocorrelation_time(x: ArrayLike) -> Any:
    """Integrated autocorrelation time `1 + 2 sum rho_k`, in draws: the factor on the variance of the mean.

    The correlations combine all chains (Gelman et al. 2013, 11.5); the sum stops by Geyer's initial monotone sequence,
    `P_m = rho_2m + rho_2m+1` as long as it is positive, never allowed to increase (Geyer 1992).
    """
    x = _chains(x)
    chains, draws = x.shape[:2]
    covariance = autocovariance(x).mean(axis=0)
    within = covariance[0] * draws / (draws - 1)
    total = within * (draws - 1) / draws
    if chains > 1:
        total = total + x.mean(axis=1).var(axis=0, ddof=1)
    # avoid division by zero for a constant sample
    safe = np.where(total > 0, total, 1.0)
    rho = 1.0 - (within - covariance) / safe
    rho[0] = 1.0
    pairs = rho[: draws // 2 * 2].reshape(draws // 2, 2, *rho.shape[1:]).sum(axis=1)
    positive = np.cumprod(pairs > 0, axis=0)
    monotone = np.minimum.accumulate(np.where(positive, pairs, 0.0), axis=0)
    time = np.maximum(2 * monotone.sum(axis=0) - 1.0, 1.0 / np.log10(max(chains * draws, 11)))
    return np.where(total > 0, time, chains * draws)[()]


def effective_sample_size(x: ArrayLike) -> Any:
    """The number of independent draws that would give the same variance of the mean, over all chains together."""
    x = _chains(x)
    return x.shape[0] * x.shape[1] / autocorrelation_time(x)


def split_r_hat(x: ArrayLike) -> Any:
    """Potential scale reduction of half chains: near 1 (below 1.01) when chains agree and are stationary.

    Each chain is cut in two, so that one that drifts disagrees with itself (Gelman et al. 2013, 11.4).
    """
    x = _chains(x)
    half = x.shape[1] // 2
    x = np.concatenate([x[:, :half], x[:, -half:]])
    within = x.var(axis=1, ddof=1).mean(axis=0)
    between = x.mean(axis=1).var(axis=0, ddof=1)
    spread = np.where(within > 0, within, 1.0)
    ratio = np.sqrt((half - 1) / half + between / spread)
    return np.where(within > 0, ratio, np.where(between > 0, np.inf, 1.0))[()]


def _chains(x: ArrayLike) -> np.ndarray:
    x = np.asarray(x, float)
    x = x[None] if x.ndim == 1 else x
    if x.ndim < 2 or x.shape[1] < 4:
        raise InputError(f"a sample needs at least 4 draws in each chain; this one has shape {x.shape}")
    if not np.all(np.isfinite(x)):
        raise InputError(f"the sample has {int(np.sum(~np.isfinite(x)))} entries that are NaN or infinite")
    return x
