"""Time at equal accuracy against heyoka's Taylor method. One run, one core.

    python benchmarks/against_heyoka.py [pendulum] [planets] [batch] [reduced]

**pendulum**: the double pendulum (rods 1 and sqrt 2, unit masses, start (0,-1), (1,-2) at rest) to T = 50. heyoka
integrates the two angles of equations that were reduced by hand; we integrate four Cartesian coordinates with two
constraints, as the user wrote them. For each method time and position error at T are measured over step sizes
(tolerances for Taylor methods), and the time at an error of 1e-10 and 1e-13 is interpolated on the curve.
**planets**: Sun, four outer planets and Pluto for 10^6 days at 1e-15, beside REBOUND's IAS15 where it is installed.
**batch**: eight double pendula at once in SIMD lanes.
**reduced**: spherical pendulum, heavy top and tethered satellites in Cartesian coordinates, as users write them, beside
SciPy's DOP853 on equations that were reduced by hand (angles, Euler's equations, a rigid triangle).
Compilation is reported apart. Times are the least CPU time of several runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx
from holonomix.methods.taylor import solution_series
from holonomix.run.backends import choose
from holonomix.run.stepper import make_stepper

T, GOALS = 50.0, (1e-10, 1e-13)
DAYS = 1e6
BODIES = 2048  # trajectories of the batch


def least(run: Callable[[], object], repeats: int = 25) -> float:
    run()
    best = np.inf
    for _ in range(repeats):
        began = time.process_time()  # of all threads
        run()
        best = min(best, time.process_time() - began)
    return best


def positions(angles: np.ndarray) -> np.ndarray:
    first = np.array([np.sin(angles[0]), -np.cos(angles[0])])
    return np.array([first, first + np.sqrt(2) * np.array([np.sin(angles[1]), -np.cos(angles[1])])])


def heyoka_integrator(tol: float, lanes: int = 1):
    import heyoka as hy

    a, b, u, v = hy.make_vars("a", "b", "u", "v")
    length = float(np.sqrt(2))
    s, c = hy.sin(a - b), hy.cos(a - b)
    divisor = 1.0 + s * s
    du = (hy.sin(b) * c - u**2 * s * c - length * v**2 * s - 2.0 * hy.sin(a)) / divisor
    dv = (2.0 * (u**2 * s - hy.sin(b) + hy.sin(a) * c) + length * v**2 * s * c) / (length * divisor)
    equations, start = [(a, u), (b, v), (u, du), (v, dv)], np.array([0.0, np.pi / 4, 0.0, 0.0])
    if lanes == 1:
        return hy.taylor_adaptive(equations, start, tol=tol)
    return hy.taylor_adaptive_batch(equations, np.repeat(start[:, None], lanes, axis=1), tol=tol)


def heyoka_curve(reference: np.ndarray) -> list[tuple[float, float]]:
    points = []
    for tol in 10.0 ** np.arange(-7, -18, -1.0):
        integrator = heyoka_integrator(tol)

        def run(integrator=integrator):
            integrator.time = 0.0
            integrator.state[:] = [0.0, np.pi / 4, 0.0, 0.0]
            integrator.propagate_until(T)

        elapsed = least(run)
        points.append((elapsed, np.abs(positions(integrator.state) - reference).max()))
    return points


def our_curve(method, reference: np.ndarray, steps: tuple[int, ...]) -> tuple[list[tuple[float, float]], float]:
    problem = hx.models.double_pendulum()
    points, worst = [], 0.0
    for count in steps:
        stepper, consts = make_stepper(problem.system.prepare(problem.q0), method, dt=T / count)
        carry = stepper.start(consts, problem.q0, problem.p0)
        runner = choose("native", stepper, carry, consts).runner
        carry, consts = (jax.tree.map(np.asarray, x) for x in (carry, consts))
        final = runner.run_one(carry, consts, rows=1, every=count)[0]
        if int(final.status):
            continue
        elapsed = least(lambda runner=runner, c=carry, k=consts, n=count: runner.run_one(c, k, rows=1, every=n))
        points.append((elapsed, np.abs(np.asarray(final.state.q) - reference).max()))
        worst = max(worst, float(np.abs(problem.system.constraint(final.state.q)).max()))
    return points, worst


def to_the_end(final, end: float):
    """The carry of a run that got to its end: one that stops early is fast."""
    if not np.all(np.asarray(final.state.t) >= end):
        reason = hx.Status(int(np.max(np.asarray(final.status)))).message
        raise RuntimeError(f"a run to t = {end:g} stopped at {float(np.min(np.asarray(final.state.t))):g}: {reason}")
    return final


def time_at(goal: float, points: list[tuple[float, float]]) -> float:
    """Where the curve of log time over log error passes the goal; infinity when it does not."""
    for (t0, e0), (t1, e1) in zip(points, points[1:], strict=False):
        if e0 >= goal >= e1:
            return float(np.exp(np.interp(-np.log(goal), [-np.log(e0), -np.log(e1)], [np.log(t0), np.log(t1)])))
    return np.inf


def at_time(system, method, state, t: float):
    """q at time t from the series at a state before it."""
    series = solution_series(system, state.q, state.p, state.t, method.order, t - state.t)
    return np.asarray(hx.taylor.evaluate(jnp.stack(series.q), 1.0))


def taylor_curve(reference: np.ndarray) -> tuple[list[tuple[float, float]], float, float]:
    """Time and error over tolerances, the worst constraint error, and the time to compile."""
    problem = hx.models.double_pendulum()
    system = problem.system.prepare(problem.q0)
    points, worst, compile_time = [], 0.0, 0.0
    for tol in 10.0 ** np.arange(-8, -17, -1.0):
        method = hx.TaylorAdaptive(float(tol))
        began = time.process_time()
        stepper, consts = make_stepper(system, method, dt=0.1, t_end=T)
        carry = stepper.start(consts, problem.q0, problem.p0)
        runner = choose("native", stepper, carry, consts).runner
        carry, consts = (jax.tree.map(np.asarray, x) for x in (carry, consts))
        final = to_the_end(runner.run_one(carry, consts, rows=1, every=100_000)[0], T)
        compile_time = time.process_time() - began
        last = int(final.state.n)
        before = runner.run_one(carry, consts, rows=1, every=last - 1)[0].state
        elapsed = least(lambda runner=runner, c=carry, k=consts: runner.run_one(c, k, rows=1, every=100_000))
        points.append((elapsed, np.abs(at_time(system, method, before, T) - reference).max()))
        worst = max(worst, float(np.abs(system.constraint(final.state.q)).max()))
    return points, worst, compile_time


# -- the outer solar system (Hairer, Lubich & Wanner 2006, I.2.4): astronomical units, days, solar masses ------------

GRAVITY = 2.95912208286e-4
MASSES = np.array([1.00000597682, 0.000954786104043, 0.000285583733151, 4.37273164546e-5, 5.17759138449e-5, 1 / 1.3e8])
START = np.array(
    [
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [-3.5023653, -3.8169847, -1.5507963, 0.00565429, -0.00412490, -0.00190589],
        [9.0755314, -3.0458353, -1.6483708, 0.00168318, 0.00483525, 0.00192462],
        [8.3101420, -16.2901086, -7.2521278, 0.00354178, 0.00137102, 0.00055029],
        [11.4707666, -25.7294829, -10.8169456, 0.00288930, 0.00114527, 0.00039677],
        [-15.5387357, -25.2225594, -3.1902382, 0.00276725, -0.00170702, -0.00136504],
    ]
)


def planets() -> tuple[hx.System, np.ndarray, np.ndarray]:
    i, j = np.array(list(combinations(range(6), 2))).T
    strength = GRAVITY * MASSES[i] * MASSES[j]

    def potential(q):
        d = q[i] - q[j]
        return -jnp.sum(strength / jnp.sqrt(jnp.sum(d * d, axis=1)))

    system = hx.System(potential, mass=np.repeat(MASSES[:, None], 3, axis=1))
    return system, START[:, :3], MASSES[:, None] * START[:, 3:]


def run_planets() -> None:
    import heyoka as hy

    system, q, p = planets()
    method = hx.TaylorAdaptive(1e-15)
    began = time.process_time()
    stepper, consts = make_stepper(system.prepare(jnp.asarray(q)), method, dt=10.0, t_end=DAYS)
    carry = stepper.start(consts, jnp.asarray(q), jnp.asarray(p))
    runner = choose("native", stepper, carry, consts).runner
    carry, consts = (jax.tree.map(np.asarray, x) for x in (carry, consts))
    final = to_the_end(runner.run_one(carry, consts, rows=1, every=1_000_000)[0], DAYS)
    compile_time = time.process_time() - began
    ours = least(lambda: runner.run_one(carry, consts, rows=1, every=1_000_000), 5)
    energy = float(system.hamiltonian(jnp.asarray(q), jnp.asarray(p)))
    error = abs(float(system.hamiltonian(final.state.q, final.state.p)) / energy - 1)

    equations = hy.model.nbody(6, masses=list(MASSES), Gconst=GRAVITY)
    began = time.process_time()
    integrator = hy.taylor_adaptive(equations, START.ravel(), tol=1e-15)
    their_compile = time.process_time() - began

    def theirs_run():
        integrator.time = 0.0
        integrator.state[:] = START.ravel()
        integrator.propagate_until(DAYS)

    theirs = least(theirs_run, 5)
    state = integrator.state.reshape(6, 6)
    their_error = abs(float(system.hamiltonian(state[:, :3], MASSES[:, None] * state[:, 3:])) / energy - 1)
    print(f"outer solar system, {DAYS:g} days at 1e-15")
    print(
        f"  heyoka          {theirs * 1e3:8.1f} ms  energy error {their_error:.0e}  compiled in {their_compile:.1f} s"
    )
    print(f"  TaylorAdaptive  {ours * 1e3:8.1f} ms  energy error {error:.0e}  compiled in {compile_time:.1f} s")
    verdict(ours / theirs, 1.2)
    verdict(compile_time, 5.0, "seconds to compile")
    try:
        import rebound
    except ImportError:
        print("  REBOUND is not installed: IAS15 is left out")
        return
    sim = rebound.Simulation()
    sim.G, sim.integrator = GRAVITY, "ias15"
    for mass, row in zip(MASSES, START, strict=True):
        sim.add(m=mass, x=row[0], y=row[1], z=row[2], vx=row[3], vy=row[4], vz=row[5])
    first, began = sim.energy(), time.process_time()
    sim.integrate(DAYS)
    elapsed = time.process_time() - began
    print(f"  REBOUND IAS15   {elapsed * 1e3:8.1f} ms  energy error {abs(sim.energy() / first - 1):.0e}")


def run_batch() -> None:
    import heyoka as hy

    problem, method = hx.models.double_pendulum(), hx.TaylorAdaptive(1e-15)
    system = problem.system.prepare(problem.q0)
    stepper, consts = make_stepper(system, method, dt=0.1, t_end=T)
    one = stepper.start(consts, problem.q0, problem.p0)
    many = jax.tree.map(lambda x: np.broadcast_to(np.asarray(x), (BODIES, *np.shape(x))).copy(), one)
    runner = choose("native", stepper, one, consts, alone=False).runner
    axes = jax.tree.map(lambda _: None, consts)
    to_the_end(runner.run(many, consts, axes, rows=1, every=100_000)[0], T)
    least_time = least(lambda: runner.run(many, consts, axes, rows=1, every=100_000), 3)
    wide = hy.recommended_simd_size()
    integrator = heyoka_integrator(1e-15, wide)

    def theirs_run():
        integrator.set_time(0.0)
        integrator.state[:] = np.repeat([[0.0], [np.pi / 4], [0.0], [0.0]], wide, axis=1)
        integrator.propagate_until(T)

    theirs = least(theirs_run, 10) / wide
    print(f"double pendulum at 1e-15, per trajectory in a batch: heyoka ({wide} lanes) {theirs * 1e3:.3f} ms, ", end="")
    print(f"TaylorAdaptive {least_time / BODIES * 1e3:.3f} ms")
    verdict(least_time / BODIES / theirs, 1.2)


# -- systems that others can treat only after reduction --------------------------------------------------------------


def spherical_angles(t, z):
    theta, _, dtheta, dphi = z
    s, c = np.sin(theta), np.cos(theta)
    return [dtheta, dphi, s * c * dphi**2 - s, -2 * dtheta * dphi * c / s]


def euler_top(t, z):
    """Angular velocity and vertical in the body; inertia (1, 1, 1/2), center of mass on the third axis."""
    u, v, w, x, y, n = z
    return [0.5 * v * w + y, -0.5 * u * w - x, 0.0, y * w - n * v, n * u - x * w, x * v - y * u]


TRIANGLE = np.array([[0.0, 0.5, 3**-0.5 / 2], [0.0, -0.5, 3**-0.5 / 2], [0.0, 0.0, -(3**-0.5)]])
TRIANGLE_INERTIA = np.sum(TRIANGLE**2) * np.eye(3) - TRIANGLE.T @ TRIANGLE


def rigid_triangle(t, z):
    """Center, its velocity, rotation matrix and angular velocity in the body."""
    center, velocity, rotation, spin = z[:3], z[3:6], z[6:15].reshape(3, 3), z[15:]
    points = center + TRIANGLE @ rotation.T
    pull = -points / np.sum(points**2, axis=1)[:, None] ** 1.5
    torque = np.sum(np.cross(TRIANGLE, pull @ rotation), axis=0)
    turning = np.linalg.solve(TRIANGLE_INERTIA, torque - np.cross(spin, TRIANGLE_INERTIA @ spin))
    a, b, c = spin
    hat = np.array([[0.0, -c, b], [c, 0.0, -a], [-b, a, 0.0]])
    return np.concatenate([velocity, pull.mean(axis=0), (rotation @ hat).ravel(), turning])


def triangle_start(q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The rigid motion of three points: their velocities about the center are `spin x r`."""
    r, w = q - q.mean(axis=0), v - v.mean(axis=0)
    inertia = np.sum(r**2) * np.eye(3) - r.T @ r
    spin = np.linalg.solve(inertia, np.sum(np.cross(r, w), axis=0))  # the triangle starts as TRIANGLE: rotation 1
    return np.concatenate([q.mean(axis=0), v.mean(axis=0), np.eye(3).ravel(), spin])


def reduced_cases():
    """Name, problem, end, reduced equations and start, and what both must agree on, from their own variables."""
    ball = hx.models.spherical_pendulum()
    place = lambda z: np.array([np.sin(z[0]) * np.cos(z[1]), np.sin(z[0]) * np.sin(z[1]), -np.cos(z[0])])
    yield (
        "spherical pendulum",
        ball,
        50.0,
        spherical_angles,
        [np.pi / 3, 0.0, 0.3, 0.8 / np.sin(np.pi / 3)],
        place,
        (lambda q: q),
    )
    top = hx.models.heavy_top()
    vertical = np.asarray(top.q0)[2]
    yield "heavy top", top, 20.0, euler_top, [0.0, 0.0, 8.0, *vertical], lambda z: z[3:], lambda q: q[2]
    tethers = hx.models.tethered_satellites()
    start = triangle_start(np.asarray(tethers.q0), np.asarray(tethers.p0))
    corners = lambda z: z[:3] + TRIANGLE @ z[6:15].reshape(3, 3).T
    yield "tethered satellites", tethers, 100.0, rigid_triangle, start, corners, lambda q: q


def run_reduced() -> None:
    from scipy.integrate import solve_ivp

    method = hx.TaylorAdaptive(1e-15)
    for name, problem, end, equations, start, seen, ours_seen in reduced_cases():
        system = problem.system.prepare(problem.q0)
        stepper, consts = make_stepper(system, method, dt=problem.dt, t_end=end)
        carry = stepper.start(consts, problem.q0, problem.p0)
        runner = choose("native", stepper, carry, consts).runner
        carry, consts = (jax.tree.map(np.asarray, x) for x in (carry, consts))
        last = int(to_the_end(runner.run_one(carry, consts, rows=1, every=1_000_000)[0], end).state.n)
        before = runner.run_one(carry, consts, rows=1, every=last - 1)[0].state
        ours = least(lambda: runner.run_one(carry, consts, rows=1, every=1_000_000), 10)  # noqa: B023
        q = at_time(system, method, before, end)
        solve = lambda: solve_ivp(equations, (0.0, end), start, method="DOP853", rtol=3e-14, atol=1e-15)  # noqa: B023
        theirs = least(solve, 2)
        difference = np.abs(seen(solve().y[:, -1]) - ours_seen(q)).max()
        worst = float(np.abs(system.constraint(jnp.asarray(before.q))).max())
        print(f"{name}, T = {end:g}: DOP853 {theirs * 1e3:.1f} ms, TaylorAdaptive {ours * 1e3:.3f} ms ", end="")
        print(f"({last} steps, constraint error {worst:.0e}), they differ by {difference:.0e}")
        print(f"  {theirs / ours:.0f} times faster, goal 50: {'pass' if theirs >= 50 * ours else 'MISS'}")


def verdict(ratio: float, goal: float, what: str = "times heyoka") -> None:
    print(f"  {ratio:.2f} {what}, goal {goal:g}: {'pass' if ratio <= goal else 'MISS'}")


def run_pendulum() -> None:
    began = time.process_time()
    tight = heyoka_integrator(1e-18)
    their_compile = time.process_time() - began
    tight.propagate_until(T)
    reference = positions(tight.state)
    theirs = heyoka_curve(reference)
    ours, constraint, compile_time = taylor_curve(reference)
    cases = [("heyoka, angles", theirs, np.nan), ("TaylorAdaptive", ours, constraint)]
    for method, steps in ((hx.LobattoIIIAB(7), (125, 160, 200, 250, 320, 400)),):
        cases.append((method.name, *our_curve(method, reference, steps)))
    for goal in GOALS:
        print(f"double pendulum: time for an error of {goal:g} at T = {T:g}")
        base = time_at(goal, theirs)
        for name, points, worst in cases:
            found = time_at(goal, points)
            print(f"  {name:<32}{found * 1e3:8.3f} ms  {found / base:5.2f}x  constraint error {worst:.0e}")
        verdict(time_at(goal, ours) / base, 1.0)
    print(f"compiled in {compile_time:.2f} s; heyoka {their_compile:.2f} s")
    verdict(compile_time, 1.0, "seconds to compile")


def main() -> None:
    try:
        import heyoka as _  # noqa: F401
    except ImportError:
        sys.exit("heyoka is not installed: pip install heyoka")
    jobs = {"pendulum": run_pendulum, "planets": run_planets, "batch": run_batch, "reduced": run_reduced}
    for name in sys.argv[1:] or jobs:
        jobs[name]()


if __name__ == "__main__":
    main()
