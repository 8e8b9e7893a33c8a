"""Error against time, one run: our methods, and general solvers on equations that were reduced by hand.

    python benchmarks/work_precision.py [--out DIR] [--t1 50] [--quick]

The double pendulum (rods 1 and sqrt 2, unit masses, start (0,-1), (1,-2) at rest). Ours integrate the constrained
equations in Cartesian coordinates. SciPy's DOP853 and Radau and heyoka's Taylor method integrate the equations of the
two angles, derived by hand; SUNDIALS IDA the index-1 equations in Cartesian coordinates. Errors are those of the
position at t1 against heyoka (or DOP853) at the smallest tolerance; energy errors beside them. Times are of the
integration alone, the best of several, compiled before. Peers that are not installed are left out, with a message.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import holonomix as hx

L1, L2 = 1.0, 2.0**0.5
PROBLEM = hx.models.double_pendulum()
ANGLES = np.asarray([0.0, np.pi / 4, 0.0, 0.0])  # measured from the vertical; then their rates


class Point(NamedTuple):
    who: str
    setting: str
    seconds: float
    q: np.ndarray
    energy: float  # largest at t1 only, as |H(t1) - H(0)|


def angle_rates(t: float, z: Any, sin: Callable = np.sin, cos: Callable = np.cos) -> list[Any]:
    """theta1', theta2', omega1', omega2' for unit masses and gravity."""
    a, b, u, w = z[0], z[1], z[2], z[3]
    s, c = sin(a - b), cos(a - b)
    det = 2.0 - c * c
    f1 = -L2 * w * w * s - 2.0 * sin(a)
    f2 = L1 * u * u * s - sin(b)
    return [u, w, (f1 - c * f2) / (L1 * det), (2.0 * f2 - c * f1) / (L2 * det)]


def cartesian(z: np.ndarray) -> tuple[np.ndarray, float]:
    """Positions and the energy from angles and their rates."""
    a, b, u, w = z
    first = L1 * np.asarray([np.sin(a), -np.cos(a)])
    second = first + L2 * np.asarray([np.sin(b), -np.cos(b)])
    v1 = L1 * u * np.asarray([np.cos(a), np.sin(a)])
    v2 = v1 + L2 * w * np.asarray([np.cos(b), np.sin(b)])
    return np.stack([first, second]), float(0.5 * (v1 @ v1 + v2 @ v2) + first[1] + second[1])


START_ENERGY = cartesian(ANGLES)[1]


def best(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    seconds, result = [], None
    for _ in range(repeats):
        began = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - began)
    return min(seconds), result


def ours(t1: float, repeats: int, quick: bool) -> Iterator[Point]:
    methods = [
        (hx.RATTLE(), (0.01, 0.002, 0.0005)),
        (hx.Composition(hx.RATTLE(), order=4), (0.05, 0.02, 0.01)),
        (hx.Composition(hx.RATTLE(), order=8), (0.2, 0.1, 0.05)),
        (hx.LobattoIIIAB(4), (0.1, 0.05, 0.025)),
        (hx.LineIntegral(4), (0.1, 0.05, 0.025)),
        (hx.LineIntegral(6, quadrature=6), (0.1, 0.05, 0.025)),
        (hx.LineIntegral(8, quadrature=8), (0.2, 0.1, 0.05)),
    ]
    for method, sizes in methods:
        for dt in sizes[: 2 if quick else None]:
            steps = round(t1 / dt)

            def run(method=method, dt=dt, steps=steps):
                return hx.simulate(PROBLEM.system, method, PROBLEM.q0, PROBLEM.p0, dt=dt, steps=steps, save_every=steps)

            run()
            _, sol = best(run, repeats)
            seconds = min(run().stats["wall_time"] for _ in range(repeats))
            energy = float(np.abs(sol.energy_error()[-1]))
            yield Point(f"{method.name} [{sol.stats['backend']}]", f"dt {dt:g}", seconds, sol.final_q, energy)


def scipy_points(t1: float, repeats: int, quick: bool) -> Iterator[Point]:
    try:
        from scipy.integrate import solve_ivp
    except ImportError:
        print("SciPy is not installed: DOP853 and Radau are left out")
        return
    for name, tolerances in (("DOP853", (1e-6, 1e-9, 1e-12)), ("Radau", (1e-5, 1e-8, 1e-10))):
        for tol in tolerances[: 2 if quick else None]:
            seconds, sol = best(
                lambda name=name, tol=tol: solve_ivp(angle_rates, (0, t1), ANGLES, method=name, rtol=tol, atol=tol),
                1 if name == "Radau" else repeats,
            )
            q, energy = cartesian(sol.y[:, -1])
            yield Point(f"SciPy {name}, reduced", f"tol {tol:g}", seconds, q, abs(energy - START_ENERGY))


def heyoka_points(t1: float, repeats: int, quick: bool) -> Iterator[Point]:
    try:
        import heyoka as hy
    except ImportError:
        print("heyoka is not installed: its Taylor method is left out")
        return
    z = hy.make_vars("a", "b", "u", "w")
    rates = angle_rates(0.0, z, hy.sin, hy.cos)
    for tol in (1e-9, 1e-12, 1e-16):
        solver = hy.taylor_adaptive(list(zip(z, rates)), list(ANGLES), tol=tol)

        def run(solver=solver):
            solver.time = 0.0
            solver.state[:] = ANGLES
            solver.propagate_until(t1)
            return np.array(solver.state)

        seconds, state = best(run, 5 * repeats)
        q, energy = cartesian(state)
        yield Point("heyoka Taylor, reduced", f"tol {tol:g}", seconds, q, abs(energy - START_ENERGY))


def ida_points(t1: float, repeats: int, quick: bool) -> Iterator[Point]:
    try:
        from sksundae.ida import IDA
    except ImportError:
        print("scikit-sundae is not installed: SUNDIALS IDA is left out")
        return

    def residual(t, y, yp, res):
        q, v, lam = y[:4], y[4:8], y[8:]
        d = q[2:] - q[:2]
        dv = v[2:] - v[:2]
        pull1, pull2 = 2 * lam[0] * q[:2] - 2 * lam[1] * d, 2 * lam[1] * d
        res[:4] = yp[:4] - v
        res[4:6] = yp[4:6] + pull1 + np.asarray([0.0, 1.0])
        res[6:8] = yp[6:8] + pull2 + np.asarray([0.0, 1.0])
        a1, a2 = yp[4:6], yp[6:8]
        res[8] = v[:2] @ v[:2] + q[:2] @ a1
        res[9] = dv @ dv + d @ (a2 - a1)

    system = PROBLEM.system
    q0, p0 = np.asarray(PROBLEM.q0).reshape(-1), np.asarray(PROBLEM.p0).reshape(-1)
    lam = np.asarray(system.multipliers(PROBLEM.q0, PROBLEM.p0))
    y0 = np.concatenate([q0, p0, lam])
    pull = np.asarray(system.linearize(PROBLEM.q0).transpose(system.multipliers(PROBLEM.q0, PROBLEM.p0))).reshape(-1)
    rates = np.concatenate([p0, -np.asarray(system.gradient(PROBLEM.q0)).reshape(-1) - pull, np.zeros(2)])
    for tol in (1e-6, 1e-9)[: 1 if quick else None]:
        solver = IDA(residual, rtol=tol, atol=tol, algebraic_idx=[8, 9], max_num_steps=10**7)
        seconds, sol = best(lambda solver=solver: solver.solve(np.asarray([0.0, t1]), y0, rates), 1)
        q, v = sol.y[-1, :4].reshape(2, 2), sol.y[-1, 4:8]
        energy = float(0.5 * v @ v + q[0, 1] + q[1, 1])
        yield Point("SUNDIALS IDA, index 1", f"tol {tol:g}", seconds, q, abs(energy - START_ENERGY))


def draw(points: list[Point], errors: list[float], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained")
    axes = figure.subplots()
    for who in dict.fromkeys(p.who for p in points):
        chosen = [(p.seconds, e) for p, e in zip(points, errors) if p.who == who]
        axes.loglog(*zip(*chosen), "o-" if "[" in who else "x--", label=who)
    axes.set(xlabel="seconds", ylabel="position error at the end", title="Double pendulum: error against time")
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/work_precision"))
    parser.add_argument("--t1", type=float, default=50.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="the two coarsest settings of each")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    points = [
        p
        for group in (heyoka_points, ours, scipy_points, ida_points)
        for p in group(options.t1, options.repeats, options.quick)
    ]

    tight = [p for p in points if p.who.startswith("heyoka")] or [p for p in points if "DOP853" in p.who]
    reference = tight[-1].q if tight else points[-1].q
    errors = [float(np.max(np.abs(p.q - reference))) for p in points]
    print(f"\n{'who':<42} {'setting':<10} {'time':>10} {'error at t1':>12} {'energy':>9}")
    for p, error in zip(points, errors):
        print(f"{p.who:<42} {p.setting:<10} {1e3 * p.seconds:8.2f} ms {error:12.1e} {p.energy:9.1e}")
    with (options.out / "work_precision.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["who", "setting", "seconds", "position error", "energy error"])
        writer.writerows([p.who, p.setting, p.seconds, e, p.energy] for p, e in zip(points, errors))
    draw(points, errors, options.out / "work_precision.png")
    print(f"wrote {options.out}/work_precision.csv and .png; reference: {tight[-1].who if tight else 'the last line'}")


if __name__ == "__main__":
    main()
