"""Autocorrelation time, effective sample size and split R-hat against an autoregressive chain, where all are known."""

import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics.invariants import autocorrelation_time, autocovariance, effective_sample_size, split_r_hat


def autoregressive(rho, chains, draws, seed=0):
    """x_{k+1} = rho x_k + sqrt(1 - rho^2) xi, stationary: autocorrelation rho^k, time (1 + rho)/(1 - rho)."""
    rng = np.random.default_rng(seed)
    x = np.empty((chains, draws))
    x[:, 0] = rng.standard_normal(chains)
    for k in range(1, draws):
        x[:, k] = rho * x[:, k - 1] + np.sqrt(1 - rho**2) * rng.standard_normal(chains)
    return x


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, -0.5])
def test_time_of_an_autoregressive_chain(rho):
    x = autoregressive(rho, 40, 5000)
    exact = (1 + rho) / (1 - rho)
    assert autocorrelation_time(x) == pytest.approx(exact, rel=0.06)
    assert effective_sample_size(x) == pytest.approx(x.size / exact, rel=0.06)
    # what it is for: the variance of a chain's mean
    assert x.mean(axis=1).var() == pytest.approx(exact / 5000, rel=0.6)


def test_one_long_chain_and_several_observables():
    x = autoregressive(0.8, 1, 40_000)[0]
    assert autocorrelation_time(x) == pytest.approx(9.0, rel=0.15)
    both = np.stack([autoregressive(0.0, 8, 2000), autoregressive(0.9, 8, 2000)], axis=-1)
    assert autocorrelation_time(both) == pytest.approx([1.0, 19.0], rel=0.25)
    assert split_r_hat(both).shape == (2,)


def test_autocovariance_is_the_plain_sum():
    x = np.random.default_rng(1).standard_normal((2, 37))
    c = x - x.mean(axis=1, keepdims=True)
    direct = [[np.sum(row[: 37 - k] * row[k:]) / 37 for k in range(37)] for row in c]
    np.testing.assert_allclose(autocovariance(x), direct, rtol=0, atol=1e-14)


def test_split_r_hat_finds_chains_that_disagree_or_drift():
    good = autoregressive(0.5, 4, 2000)
    assert split_r_hat(good) < 1.01
    assert split_r_hat(good + np.arange(4)[:, None]) > 1.3
    assert split_r_hat(good + np.linspace(0, 3, 2000)) > 1.1
    # one chain is enough to see a drift
    assert split_r_hat(good[0] + np.linspace(0, 3, 2000)) > 1.1
    assert split_r_hat(np.ones((2, 10))) == 1.0
    assert split_r_hat(np.array([[1.0] * 10, [2.0] * 10])) == np.inf


def test_a_chain_that_never_moves_counts_once():
    assert effective_sample_size(np.ones((3, 50))) == 1.0


def test_samples_that_cannot_be_judged_are_refused():
    with pytest.raises(hx.InputError, match="at least 4"):
        autocorrelation_time(np.ones((5, 3)))
    with pytest.raises(hx.InputError, match="NaN"):
        split_r_hat(np.array([1.0, np.nan, 2.0, 3.0]))
