"""A delta robot whose rods are not as long as drawn: two lengths fitted to noisy positions of its platform.

python examples/delta_fit.py

The lengths are parameters of the mechanism, so Gauss and Newton's method has the derivatives of the whole motion.
"""

import argparse

import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np

import holonomix as hx

matplotlib.use("Agg")

ARM, ROD, BASE, PLATE, HALF = 0.3, 0.8, 0.2, 0.05, 0.04  # lengths in m; HALF is half the distance of two parallel rods
DRAWN, TRUE = np.array([ROD, ROD]), np.array([0.8032, 0.7979])
NAMES = ["rod 0 left.length", "rod 2 right.length"]


def delta_robot() -> hx.Mechanism:
    """Three driven arms, each joined to a platform by two parallel rods."""
    m = hx.Mechanism(gravity=(0, 0, -9.81), name="delta robot")
    lower = BASE + ARM * np.cos(0.4) - PLATE
    height = -ARM * np.sin(0.4) - np.sqrt(ROD**2 - lower**2)
    plate = m.body("platform", shape=hx.mechanisms.Cylinder(PLATE, 0.02), mass=0.5, position=(0, 0, height))
    for k in range(3):
        turn = 2 * np.pi * k / 3
        out, side = np.array([np.cos(turn), np.sin(turn), 0]), np.array([-np.sin(turn), np.cos(turn), 0])
        along = np.cos(0.4) * out - np.sin(0.4) * np.array([0, 0, 1])
        frame = np.stack([along, side, np.cross(along, side)], axis=1)
        arm = m.body(
            f"arm {k}", mass=0.4, inertia=[2e-4, 3e-3, 3e-3], position=BASE * out + ARM / 2 * along, rotation=frame
        )
        motor = m.revolute(f"motor {k}", m.ground, arm, at=BASE * out, axis=side)
        phase = 2 * np.pi * k / 3
        m.motor(
            motor,
            lambda t, angle, rate, phase=phase: (
                60.0 * (0.25 * jnp.sin(6.0 * t + phase) - 0.25 * jnp.sin(phase) - angle) - 2.0 * rate
            ),
        )
        for name, y in (("left", HALF), ("right", -HALF)):
            elbow, wrist = (ARM / 2, y, 0), PLATE * out + y * side
            m.distance(f"rod {k} {name}", arm, plate, point_a=elbow, point_b=wrist, length=ROD)
    return m


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400, help="steps of 2 ms that are measured")
    parser.add_argument("--noise", type=float, default=2e-4, help="of each measured coordinate, in m")
    parser.add_argument("--out", default="delta_fit.png")
    given = parser.parse_args()
    m = delta_robot()
    problem = m.problem(dt=2e-3, params=NAMES)
    first = m["platform"].first
    values = lambda x: {name: x[k] for k, name in enumerate(NAMES)}

    def positions(x):
        """Of the platform, every tenth step."""
        changed = problem.with_params(values(x))
        return hx.integrate(changed, hx.RATTLE(), steps=given.steps, save_every=10)

    @jax.jit
    def path(x):
        return positions(x)[0][:, first]

    clean = np.asarray(path(TRUE))
    measured = clean + given.noise * np.random.default_rng(1).standard_normal(clean.shape)
    residual = lambda x: (path(x) - measured).reshape(-1)
    jacobian = jax.jit(jax.jacfwd(residual))
    x, found = DRAWN, [DRAWN]
    for _ in range(6):
        slopes = np.asarray(jacobian(x))
        x = x - np.linalg.lstsq(slopes, np.asarray(residual(x)), rcond=None)[0]
        found.append(x)
    sigma = given.noise * np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes)))
    for name, drawn, true, fitted, error in zip(NAMES, DRAWN, TRUE, x, sigma, strict=True):
        print(
            f"{name}: {1e3 * drawn:.1f} mm drawn, {1e3 * true:.2f} true, {1e3 * fitted:.3f} +- {1e3 * error:.3f} found"
        )

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8))
    t = 2e-3 * 10 * np.arange(len(clean))
    for values_at, label in ((DRAWN, "as drawn"), (x, "fitted")):
        left.plot(t, 1e3 * np.linalg.norm(np.asarray(path(values_at)) - measured, axis=1), ".-", label=label)
    left.set_title("distance from the measured positions [mm]", fontsize=9)
    left.set_xlabel("t [s]")
    left.legend(fontsize=8)
    off = 1e3 * (np.array(found) - TRUE)
    for k, name in enumerate(NAMES):
        right.plot(off[:, k], "o-", label=name)
        right.axhspan(-2e3 * sigma[k], 2e3 * sigma[k], color="gray", alpha=0.2)
    right.set_title("length less its true value [mm]; gray: two standard deviations", fontsize=9)
    right.set_xlabel("iteration")
    right.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(given.out, dpi=90)


if __name__ == "__main__":
    main()
