"""The contract of `lower`, `build`, `run` and `run_batch`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from evaluate import Functions, bits, build

from holonomix import compiler as kernels
from holonomix.compiler import native

BACKENDS = ["native", "oracle"]


def kepler_step(carry, consts):
    """Velocity Verlet around a point mass; the fourth entry is a count, and it halts when too close."""
    q, p, dt = carry["q"], carry["p"], consts["dt"]
    force = lambda q: -consts["mu"] * q / jnp.sum(q * q) ** 1.5
    half = p + dt / 2 * force(q)
    q = q + dt * half
    p = half + dt / 2 * force(q)
    near = jnp.sum(q * q) < consts["radius"] ** 2
    bad = ~jnp.isfinite(jnp.sum(q) + jnp.sum(p))
    status = jnp.where(bad, 2, jnp.where(near, 1, 0)).astype(jnp.int32)
    new = {"q": q, "p": p, "n": carry["n"] + 1, "status": status}
    return {k: jnp.where((status == 2) & (k != "status"), carry[k], new[k]) for k in new}


LOOP = Functions(
    kepler_step,
    lambda c, k: {"q": c["q"], "energy": jnp.sum(c["p"] ** 2) / 2 - k["mu"] / jnp.linalg.norm(c["q"]), "n": c["n"]},
    lambda c, k: c["status"] != 0,
)
CARRY = {"q": np.array([1.0, 0.0]), "p": np.array([0.0, 1.1]), "n": np.int64(0), "status": np.int32(0)}
CONSTS = {"dt": np.float64(0.01), "mu": np.float64(1.0), "radius": np.float64(0.1)}


@pytest.fixture(scope="module")
def program():
    return kernels.lower(LOOP, CARRY, CONSTS)


def reference(carry, consts, rows, every):
    step, out = jax.jit(kepler_step), []
    for _ in range(rows):
        for _ in range(every):
            if carry["status"] == 0:
                carry = step(carry, consts)
        out.append(LOOP.read(carry, consts))
    return carry, jax.tree.map(lambda *a: np.stack(a), *out)


def starts(count, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "q": np.tile(CARRY["q"], (count, 1)),
        "p": np.stack([rng.normal(size=count) * 0.2, rng.uniform(0.05, 1.2, count)], 1),
        "n": np.zeros(count, np.int64),
        "status": np.zeros(count, np.int32),
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_trajectory(program, backend):
    got, rows = build(program, backend).run_one(CARRY, CONSTS, rows=6, every=25)
    want, want_rows = reference(CARRY, CONSTS, 6, 25)
    assert rows["q"].shape == (6, 2)
    assert rows["q"].dtype == np.float64
    assert got["n"] == 150
    for a, b in zip(jax.tree.leaves((got, rows)), jax.tree.leaves((want, want_rows)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("backend", BACKENDS)
def test_halted_freezes_and_rows_go_on(program, backend):
    carry = CARRY | {"p": np.array([0.0, 0.1])}
    got, rows = build(program, backend).run_one(carry, CONSTS, rows=20, every=10)
    want, want_rows = reference(carry, CONSTS, 20, 10)
    assert got["status"] == want["status"] == 1
    assert got["n"] == want["n"] < 200
    np.testing.assert_array_equal(rows["n"], want_rows["n"])
    assert (rows["q"][-1] == rows["q"][-2]).all()
    again, _ = build(program, backend).run_one(got, CONSTS, rows=2, every=10)
    assert bits(again) == bits(got)


@pytest.mark.parametrize("backend", BACKENDS)
def test_batch_agrees_with_single_runs(program, backend):
    runner = build(program, backend)
    carry = starts(11)
    consts = CONSTS | {"dt": np.linspace(0.005, 0.02, 11)}
    got, rows = runner.run(carry, consts, {"dt": 0, "mu": None, "radius": None}, rows=4, every=30)
    assert rows["q"].shape == (11, 4, 2)
    assert set(got["status"]) == {0, 1}
    for k in range(11):
        one = jax.tree.map(lambda a, k=k: a[k], carry)
        single, single_rows = runner.run_one(one, consts | {"dt": consts["dt"][k]}, rows=4, every=30)
        for a, b in zip(jax.tree.leaves((got, rows)), jax.tree.leaves((single, single_rows)), strict=True):
            np.testing.assert_allclose(a[k], b, rtol=1e-11, atol=1e-13)


def test_bits_depend_on_no_width_thread_or_neighbor(program):
    carry = starts(37)
    one = kernels.build(program, lanes=1, threads=1).run(carry, CONSTS, rows=3, every=40)
    for lanes, threads in ((2, 1), (4, 2), (8, 1), (8, 3)):
        assert bits(kernels.build(program, lanes=lanes, threads=threads).run(carry, CONSTS, rows=3, every=40)) == bits(
            one
        )
    order = np.random.default_rng(1).permutation(37)[:20]
    part = kernels.build(program).run(jax.tree.map(lambda a: a[order], carry), CONSTS, rows=3, every=40)
    assert bits(part) == bits(jax.tree.map(lambda a: a[order], one))
    alone = kernels.build(program).run_one(jax.tree.map(lambda a: a[5], carry), CONSTS, rows=3, every=40)
    assert bits(alone) == bits(jax.tree.map(lambda a: a[5], one))


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_ends_one_trajectory_only(program, backend):
    carry = starts(9)
    good, _ = build(program, backend).run(carry, CONSTS, rows=1, every=50)
    carry["p"][4, 0] = np.nan
    bad, rows = build(program, backend).run(carry, CONSTS, rows=1, every=50)
    assert bad["status"][4] == 2
    assert bad["n"][4] == 0
    keep = np.arange(9) != 4
    assert bits(jax.tree.map(lambda a: a[keep], bad)) == bits(jax.tree.map(lambda a: a[keep], good))


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_in_pieces_are_the_same_bits(program, backend):
    runner = build(program, backend)
    whole = runner.run_one(CARRY, CONSTS, rows=10, every=7)
    middle, first = runner.run_one(CARRY, CONSTS, rows=4, every=7)
    end, second = runner.run_one(middle, CONSTS, rows=6, every=7)
    assert bits(end) == bits(whole[0])
    assert bits(jax.tree.map(lambda a, b: np.concatenate([a, b]), first, second)) == bits(whole[1])


def test_no_rows_and_no_steps(program):
    runner = kernels.build(program)
    carry, rows = runner.run_one(CARRY, CONSTS, rows=0, every=5)
    assert bits(carry) == bits(CARRY)
    assert rows["q"].shape == (0, 2)
    carry, rows = runner.run_one(CARRY, CONSTS, rows=2, every=0)
    assert bits(carry) == bits(CARRY)
    assert (rows["q"] == CARRY["q"]).all()
    empty = jax.tree.map(lambda a: np.empty((0, *a.shape), a.dtype), CARRY)
    assert runner.run(empty, CONSTS, rows=3, every=1)[1]["q"].shape == (0, 3, 2)


def test_new_numbers_do_not_recompile(program):
    runner = kernels.build(program)
    runner.run_one(CARRY, CONSTS, rows=1, every=1)
    before = dict(native.statistics)
    runner.run_one(CARRY | {"p": np.array([0.3, 0.4])}, CONSTS | {"dt": np.float64(0.5)}, rows=9, every=2)
    kernels.build(kernels.lower(LOOP, CARRY, CONSTS)).run_one(CARRY, CONSTS, rows=1, every=1)
    assert native.statistics["compiled"] == before["compiled"]
    assert native.statistics["from_memory"] == before["from_memory"] + 1


def test_jax_arrays_and_shapes_are_accepted(program):
    shapes = jax.eval_shape(lambda x: x, (CARRY, CONSTS))
    assert kernels.lower(LOOP, *shapes).hash == program.hash
    runner = kernels.build(program)
    given = jax.tree.map(jnp.asarray, (CARRY, CONSTS))
    assert bits(runner.run_one(*given, rows=2, every=3)) == bits(runner.run_one(CARRY, CONSTS, rows=2, every=3))


def test_wrong_arguments_are_refused(program):
    runner = kernels.build(program)
    with pytest.raises(TypeError, match="structure"):
        runner.run_one({"q": CARRY["q"]}, CONSTS, rows=1, every=1)
    with pytest.raises(TypeError, match="shape"):
        runner.run_one(CARRY | {"q": np.zeros(3)}, CONSTS, rows=1, every=1)
    with pytest.raises(ValueError, match="negative"):
        runner.run_one(CARRY, CONSTS, rows=-1, every=1)
    with pytest.raises(ValueError, match="back end"):
        kernels.build(program, "fortran")
    changed = Functions(lambda c, k: c | {"n": c["n"] * 0.5}, LOOP.read, LOOP.halted)
    with pytest.raises(TypeError, match=r"'n'.*int64.*float64"):
        kernels.lower(changed, CARRY, CONSTS)


def test_disk_cache(tmp_path, monkeypatch, program):
    monkeypatch.setenv("HOLONOMIX_CACHE", str(tmp_path))
    forget = lambda: native._loaded.clear()
    want = bits(kernels.build(program).run_one(CARRY, CONSTS, rows=2, every=3))

    def run():
        forget()
        before = dict(native.statistics)
        assert bits(kernels.build(program).run_one(CARRY, CONSTS, rows=2, every=3)) == want
        return {k: native.statistics[k] - before[k] for k in before}

    assert run() == {"compiled": 1, "from_disk": 0, "from_memory": 0}
    assert run() == {"compiled": 0, "from_disk": 1, "from_memory": 0}
    (stored,) = (tmp_path / "kernels").glob("*.o")
    stored.write_bytes(stored.read_bytes()[:-40])  # a damaged file
    assert run() == {"compiled": 1, "from_disk": 0, "from_memory": 0}
    assert run() == {"compiled": 0, "from_disk": 1, "from_memory": 0}
    assert not [f for f in (tmp_path / "kernels").iterdir() if f.suffix != ".o"]  # no temporary files left
    monkeypatch.setenv("HOLONOMIX_CACHE", "")
    assert run() == {"compiled": 1, "from_disk": 0, "from_memory": 0}


def test_operations_are_counted(program):
    assert 30 < program.operations < 60


def test_under_jit_and_vmap(program):
    runner = kernels.build(program)
    inside = jax.jit(lambda c, k, every: runner.under_jit(c, k, rows=3, every=every))
    assert bits(inside(CARRY, CONSTS, 7)) == bits(runner.run_one(CARRY, CONSTS, rows=3, every=7))
    many = starts(10)
    got = jax.jit(jax.vmap(lambda c: runner.under_jit(c, CONSTS, rows=3, every=7)))(many)
    assert bits(got) == bits(runner.run(many, CONSTS, rows=3, every=7))
