"""Hash the results of method x system x driver combinations, so that a change that should keep every bit can show it.

    python tools/fingerprints.py --out before.json            # on the old code
    python tools/fingerprints.py --compare before.json        # on the new code: lists every difference

With `--cuda` the ensembles also run on a GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx

STEPS = 40


def problems() -> dict[str, hx.Problem]:
    """Systems of different structure: rods, a surface, bodies, chains, water, springs, joints, a moving support."""
    moving = hx.System(
        lambda q: 9.81 * q[1],
        hx.Rheonomic(lambda q, t: jnp.array([(q[0] - 0.1 * jnp.sin(t)) ** 2 + q[1] ** 2 - 1.0])),
        force=lambda q, v, t: -0.1 * v,
    )
    return {
        "double_pendulum": hx.models.double_pendulum(),
        "chain": hx.models.chain(10),
        "bead": hx.models.bead_on_surface(),
        "water": hx.models.water_cluster(2),
        "heavy_top": hx.models.heavy_top(),
        "four_bar": hx.models.four_bar(),
        "rod": hx.models.cosserat_rod(),
        "stiff": hx.models.penalized_double_pendulum(),
        "henon_heiles": hx.models.henon_heiles(),
        "moving": hx.Problem(moving, jnp.array([0.0, -1.0]), jnp.array([0.2, 0.0]), 0.01, 1.0),
    }


METHODS = {
    "double_pendulum": [
        "RATTLE",
        "SHAKE",
        "Composition8",
        "HBVM",
        "Gauss",
        "LineIntegral",
        "Lobatto",
        "VRATTLE",
        "GLA",
        "TaylorAdaptive",
    ],
    "chain": ["RATTLE", "HBVM", "LineIntegral", "Lobatto"],
    "bead": ["RATTLE", "Gauss", "GeodesicBAOAB", "ConstrainedHMC"],
    "water": ["RATTLE", "Composition4"],
    "heavy_top": ["RATTLE", "LineIntegral"],
    "four_bar": ["RATTLE", "LineIntegral"],
    "rod": ["RATTLE"],
    "stiff": ["StormerVerlet", "Impulse", "ZhangSkeel", "RK4"],
    "henon_heiles": ["StormerVerlet", "Gauss", "AdamsBashforth"],
    "moving": ["RATTLE", "SHAKE"],
}


def make_method(name: str):
    made = {
        "Composition4": lambda: hx.Composition(hx.RATTLE(), order=4),
        "Composition8": lambda: hx.Composition(hx.RATTLE(), order=8),
        "HBVM": lambda: hx.HBVM(6, 2),
        "Gauss": lambda: hx.Gauss(2),
        "LineIntegral": lambda: hx.LineIntegral(order=4),
        "Lobatto": lambda: hx.LobattoIIIAB(3),
        "GLA": lambda: hx.GLA(hx.RATTLE(), friction=1.0, temperature=1.0),
        "GeodesicBAOAB": lambda: hx.GeodesicBAOAB(friction=1.0, temperature=1.0),
        "ConstrainedHMC": lambda: hx.ConstrainedHMC(),
        "AdamsBashforth": lambda: hx.AdamsBashforth(3),
        "ZhangSkeel": lambda: hx.ZhangSkeel(),
    }
    return made[name]() if name in made else getattr(hx, name)()


def digest(*arrays) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def run(problem: hx.Problem, method, driver: str) -> str:
    key = jax.random.key(5)
    start = {"dt": problem.dt, "steps": STEPS, "key": key}
    system, q, p = problem.system, np.asarray(problem.q0), np.asarray(problem.p0)
    if driver == "integrate":
        return digest(*hx.integrate(system, method, q, p, **start))
    if driver.startswith("ensemble"):
        _, _, backend = driver.partition("-")
        many = np.stack([q, q, q]), np.stack([p, p, p])
        ens = hx.simulate_ensemble(system, method, *many, save_every=10, backend=backend, **start)
        return digest(ens.t, ens.q, ens.p, [int(s) for s in np.ravel(ens.status)])
    _, _, backend = driver.partition("-")
    sol = hx.simulate(system, method, q, p, save_every=10, backend=backend, throw=False, **start)
    return digest(sol.t, sol.q, sol.p, sol.multipliers, [int(sol.status)])


def fingerprints(cuda: bool) -> dict[str, str]:
    warnings.simplefilter("ignore")
    found = {}
    for name, problem in problems().items():
        for place, method in enumerate(METHODS[name]):
            drivers = ["simulate-native", "ensemble-native"]
            drivers += [("simulate-array", "integrate", "ensemble-array")[place % 3]]
            drivers += ["ensemble-cuda"] if cuda else []
            for driver in drivers:
                case = f"{name} {method} {driver}"
                try:
                    found[case] = run(problem, make_method(method), driver)
                except hx.HolonomixError as error:
                    found[case] = f"{type(error).__name__}: {str(error).splitlines()[0][:90]}"
                print(case, found[case], file=sys.stderr, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out")
    parser.add_argument("--compare")
    parser.add_argument("--cuda", action="store_true")
    asked = parser.parse_args()
    found = fingerprints(asked.cuda)
    if asked.out:
        with open(asked.out, "w") as file:
            json.dump(found, file, indent=1)
    before = json.load(open(asked.compare)) if asked.compare else {}
    wrong = [name for name in before if name in found and before[name] != found[name]]
    for name in wrong:
        print(f"differs: {name}: {before[name]} -> {found[name]}")
    print(f"{len(found)} combinations, {len(before.keys() & found.keys())} compared, {len(wrong)} differ")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
