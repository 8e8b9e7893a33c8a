"""A seven-axis arm from a URDF file falls with damped axes: joint angles and the force at its base.

python examples/robot_arm.py

Half a minute on one core, nearly all for compilation; every further second of motion (`--t1`) takes 2 s.
"""

import argparse

import matplotlib
import matplotlib.pyplot as plt

import holonomix as hx

matplotlib.use("Agg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--t1", type=float, default=1.0, help="seconds of motion")
    parser.add_argument("--out", default="robot_arm.png")
    given = parser.parse_args()
    m = hx.models.seven_axis_arm(mechanism=True)
    for k in range(1, 8):
        m.torsion_spring(m[f"axis {k}"], damping=4.0 * 0.5**k)  # less at the light wrist
    problem = m.problem()
    sol = hx.simulate(problem, hx.RATTLE(), dt=1e-3, steps=round(1000 * given.t1), save_every=5)
    print(f"joints open by at most {max(v.max() for v in m.joint_error(sol).values()):.1e}")
    print(f"energy lost in the brakes: {m.energy(sol)[0] - m.energy(sol)[-1]:.2f} J")
    figure, (angles, base) = plt.subplots(1, 2, figsize=(10, 3.6))
    for k in range(1, 8):
        angles.plot(sol.t, m[f"axis {k}"].angle(sol), label=f"axis {k}")
    angles.set_title("angles [rad]", fontsize=9)
    angles.legend(fontsize=7)
    base.plot(sol.t, m["axis 1"].force(sol))
    base.axhline(9.81 * sum(body.mass for body in m.bodies), color="gray", linewidth=0.7)
    base.set_title("force at the base [N] (x, y, z), and the weight", fontsize=9)
    for ax in (angles, base):
        ax.set_xlabel("t [s]")
    figure.tight_layout()
    figure.savefig(given.out, dpi=90)


if __name__ == "__main__":
    main()
