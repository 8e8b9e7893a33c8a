"""Tao & Owhadi (2015), sections 3, 4.1 and 4.2: figures 1 to 3 and the closed-form example.

The potential of sections 4.1 and 4.2 is taken as `V = +sum y`: the printed sign starts the pendula inverted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import holonomix as hx
from holonomix.methods.partitioned import SYMPLECTIC_EULER

from .items import Findings, item, legend, log_ticks, rigid_reference

BETA, OMEGA = 0.4, 20.0
SIGN = "sections 4.1 and 4.2: the potential is V = +sum y"


# -- section 4.1: the double pendulum ----------------------------------------------------------------------------------


def pendulum_methods(problem: hx.Problem) -> dict[str, tuple[Any, Any, int]]:
    """The rows of figure 1 in the order of the paper, and ours: system, method, and the divisor of h."""
    stiff = problem.system.penalized(OMEGA)
    return {
        "SHAKE": (problem.system, hx.SHAKE(), 1),
        "variational Euler, penalized, h/20": (stiff, hx.PartitionedRungeKutta(SYMPLECTIC_EULER), round(OMEGA)),
        "Newmark": (stiff, hx.Newmark(BETA), 1),
        "one-iteration Newmark": (stiff, hx.LinearlyImplicitNewmark(BETA), 1),
        "Z&S": (stiff, hx.ZhangSkeel(BETA), 1),
        "pushforward Newmark (ours)": (stiff, hx.PushforwardNewmark(BETA), 1),
        "Z&Ss (ours)": (stiff, hx.ZhangSkeelSimplified(BETA), 1),
    }


@item(
    "figure1",
    "errors of the double pendulum",
    "section 4.1, Figure 1",
    "T = 50, omega 20, beta 0.4, h 0.1 (variational Euler: h/20); benchmark row with h/1000",
    quick="benchmark row with h/100",
    seconds=(1, 1),
)
def figure1(found: Findings, quick: bool) -> None:
    """Newmark with one iteration errs much; Z&S errs as little as fully solved Newmark, and more than SHAKE because the
    penalized model is itself an approximation.
    """
    problem, t1, h = hx.models.double_pendulum(), 50.0, 0.1
    exact = rigid_reference(problem, h, t1)
    rows = pendulum_methods(problem)
    table = found.table("Double pendulum to T = 50, omega 20, beta 0.4, h 0.1", "method", "largest error of x2, y2")
    axes = found.panels("figure1", 6, 1, (3.4, 7.0), sharex=True)
    errors = {}
    euler = hx.methods.VariationalIntegrator(hx.methods.variational.EulerLagrangian())
    angles, parts = hx.models.double_pendulum_angles(), 100 if quick else 1000
    sol = hx.simulate(angles, euler, dt=h / parts, steps=round(t1 / h) * parts, save_every=parts)
    benchmark = f"variational Euler in angles, h/{parts}"
    curves = {benchmark: _from_angles(sol.q, problem)[:, 1] - exact.q[:, 1]}
    for name, (system, method, k) in rows.items():
        sol = hx.simulate(system, method, problem.q0, problem.p0, dt=h / k, steps=round(t1 / h) * k, save_every=k)
        curves[name] = sol.q[:, 1] - exact.q[:, 1]
    for name, error in curves.items():
        errors[name] = float(np.max(np.abs(error)))
        table.add(name, errors[name])
    lines = []
    for panel, (name, error) in zip(axes, list(curves.items())[:6]):
        lines = panel.plot(exact.t[: len(error)], error, lw=0.7)
        panel.set_title(name)
    lines[0].set_label("$x_2$")
    lines[1].set_label("$y_2$")
    axes[3].set_ylabel("error of position")
    axes[-1].set_xlabel("$t$")
    legend(axes[-1], 2)
    e = errors
    found.compare(
        "one-iteration Newmark errs much more than Newmark",
        "large error, symplecticity lost",
        f"{e['one-iteration Newmark']:.3f} against {e['Newmark']:.3f}",
        e["one-iteration Newmark"] > 2 * e["Newmark"],
        correction=SIGN,
    )
    found.compare(
        "Z&S and fully solved Newmark",
        "small errors, almost identical",
        f"{e['Z&S']:.3f} and {e['Newmark']:.3f}",
        abs(e["Z&S"] / e["Newmark"] - 1) < 0.15,
    )
    found.compare("Z&S errs more than SHAKE", "yes", f"{e['Z&S']:.3f} against {e['SHAKE']:.3f}", e["Z&S"] > e["SHAKE"])
    row3 = e["variational Euler, penalized, h/20"]
    found.compare("error of the penalized model (row 3)", "part of the error of Z&S", row3, row3 < e["Z&S"])
    if e[benchmark] > 0.1 * e["SHAKE"]:
        found.note(
            f"The paper's kind of benchmark has an error of {e[benchmark]:.3g} itself with h/{parts}; ours is RATTLE "
            f"raised to order eight."
        )


def _from_angles(q: np.ndarray, problem: hx.Problem) -> np.ndarray:
    lengths = np.asarray(problem.system.params["lengths"])
    arms = lengths[:, None] * np.stack([np.sin(q), -np.cos(q)], axis=-1)
    return np.cumsum(arms, axis=1)


@item(
    "figure2",
    "constraints and multipliers of the penalized pendulum",
    "section 4.1, Figure 2",
    "Z&S with h = 0.01 to T = 50, omega 10 to 160",
    quick="omega 10 to 80",
    seconds=(0.5, 0.5),
)
def figure2(found: Findings, quick: bool) -> None:
    """omega^2 |g(q(T))| stays bounded as omega grows, and multipliers from window means of width 0.2 agree with
    SHAKE's.
    """
    problem, t1 = hx.models.double_pendulum(), 50.0
    omegas = (10, 20, 40, 80) if quick else (10, 20, 40, 80, 160)
    table = found.table("omega^2 |g|, Z&S with h = 0.01", "omega", "at T = 50", "largest up to T")
    last, largest = [], []
    for omega in omegas:
        system = problem.system.penalized(omega)
        sol = hx.simulate(system, hx.ZhangSkeel(BETA), problem.q0, problem.p0, dt=0.01, t1=t1)
        size = np.linalg.norm(hx.certificates.penalty_multipliers(sol, 0.0)[1], axis=1)
        last.append(float(size[-1]))
        largest.append(float(size.max()))
        table.add(omega, last[-1], largest[-1])
    found.compare(
        "omega^2 |g(q(T))| as omega grows",
        "bounded: |g| = O(omega^-2)",
        f"at T at most {max(last):.2f}; largest {largest[0]:.2f} at omega {omegas[0]}, {largest[-1]:.2f} at "
        f"{omegas[-1]}",
        largest[-1] < 2 * largest[0] and max(last) <= max(largest),
        correction=SIGN,
    )
    sol = hx.simulate(problem.system.penalized(OMEGA), hx.ZhangSkeel(BETA), problem.q0, problem.p0, dt=0.01, t1=t1)
    exact = rigid_reference(problem, 0.01, t1)
    left, right = found.panels("figure2", 1, 2, (7.0, 2.8))
    rms = {}
    for window, label in ((0.0, r"$\omega^2 g_1$"), (0.2, "mean over 0.2")):
        t, lam = hx.certificates.penalty_multipliers(sol, window)
        target = np.stack([np.interp(t, exact.t, exact.multipliers[:, k]) for k in range(2)], axis=1)
        rms[window] = float(np.sqrt(np.mean((lam - target) ** 2)))
        right.plot(t, lam[:, 0], lw=0.5 if window == 0 else 1.6, label=label, color="0.7" if window == 0 else None)
    right.plot(exact.t, exact.multipliers[:, 0], "k--", lw=0.9, label="RATTLE")
    right.set(xlabel="$t$", ylabel=r"$\lambda_1$", xlim=(0, 10))
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    left.semilogx(omegas, last, marker="s", label="at $T = 50$")
    left.semilogx(omegas, largest, marker="o", label="largest")
    left.set(xlabel=r"$\omega$", ylabel=r"$\omega^2 |g|$", ylim=(0, None))
    log_ticks(left, omegas)
    left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    size = float(np.sqrt(np.mean(exact.multipliers**2)))
    table = found.table("Lagrange multipliers at omega 20", "quantity", "root mean square")
    table.add("lambda", size)
    table.add("omega^2 g - lambda", rms[0.0])
    table.add("mean of omega^2 g over 0.2 - lambda", rms[0.2])
    found.compare(
        "window means of omega^2 g and SHAKE's multipliers",
        "agree; omega^2 g itself does not converge",
        f"rms differences {rms[0.2]:.3f} and {rms[0.0]:.2f} (lambda: {size:.2f})",
        rms[0.2] < 0.1 * size and rms[0.0] > 3 * rms[0.2],
    )


@item(
    "closed_form",
    "two-scale convergence in closed form",
    "section 3, equations (1.8), (1.11) and (3.1)",
    "omega 20 and 200, window 0.3, t to 6",
    seconds=(0.5, 0.5),
)
def closed_form(found: Findings, quick: bool) -> None:
    """omega^2 g has no limit, but its mean over a window tends to the multiplier, and window means of bounded functions
    converge.
    """
    system = hx.System(lambda q: 0.5 * (q[1] - q[0]) ** 2, lambda q: q[:1])
    axes = found.panels("closed_form", 1, 2, (7.0, 2.6), sharey=True)
    columns = ("omega", "error of q1", "rms omega^2 q1 - cos t", "rms mean - cos t", "(1.11)")
    table = found.table("Penalized motion to t = 6; window 0.3", *columns)
    rows = []
    for panel, omega in zip(axes, (20.0, 200.0), strict=True):
        h = 0.02 / omega
        sol = hx.simulate(
            system.penalized(omega), hx.Composition(hx.StormerVerlet(), 4), [0.0, 1.0], [0.0, 0.0], dt=h, t1=6.0
        )
        root = np.sqrt(4 + omega**4)
        w1, w2 = (np.sqrt((2 + omega**2 + s * root) / 2) for s in (-1, 1))
        exact = (np.cos(w1 * sol.t) - np.cos(w2 * sol.t)) / root
        t, mean = hx.certificates.penalty_multipliers(sol, 0.3)
        raw = hx.certificates.penalty_multipliers(sol, 0.0)[1]
        rms = lambda x, time: float(np.sqrt(np.mean((x[:, 0] - np.cos(time)) ** 2)))
        # (1.11) with the bounded test function tanh(q1 + q2), the largest window mean of the difference
        gap = np.tanh(sol.q.sum(axis=1)) - np.tanh(np.cos(sol.t))
        total = np.concatenate([[0.0], np.cumsum((gap[1:] + gap[:-1]) / 2 * np.diff(sol.t))])
        width = round(0.3 / h)
        weak = float(np.max(np.abs(total[width:] - total[:-width])) / 0.3)
        rows.append((float(np.max(np.abs(sol.q[:, 0] - exact))), rms(raw, sol.t), rms(mean, t), weak))
        table.add(omega, *rows[-1])
        panel.plot(sol.t, raw[:, 0], lw=0.4, color="0.7", ls="-", label=r"$\omega^2 q_1$")
        panel.plot(t, mean[:, 0], lw=1.6, color="C1", ls="-", label="mean over 0.3")
        panel.plot(sol.t, np.cos(sol.t), "k--", lw=1, label=r"$\cos t$")
        panel.set(title=rf"$\omega = {omega:g}$", xlabel="$t$")
    axes[0].set_ylabel(r"$\lambda$")
    legend(axes[0])
    (error, raw0, mean0, weak0), (error1, raw1, mean1, weak1) = rows
    found.compare(
        "closed form of q1",
        "(cos w1 t - cos w2 t)/sqrt(4 + omega^4)",
        f"to {max(error, error1):.1e}",
        max(error, error1) < 1e-6,
    )
    found.compare("omega^2 q1 has no limit", "(3.1) fails", f"rms distance {raw0:.2f}, then {raw1:.2f}", raw1 > 0.5)
    found.compare(
        "its window mean tends to lambda, (1.8)",
        "-cos t in the paper's sign",
        f"rms distance {mean0:.3f}, then {mean1:.3f}",
        mean1 < 0.05 and mean1 < mean0,
    )
    found.compare("(1.11) for tanh(q1 + q2)", "tends to 0", f"{weak0:.1e}, then {weak1:.1e}", weak1 < 0.1 * weak0)


# -- section 4.2: a chain ----------------------------------------------------------------------------------------------


@item("figure3", "chain of ten pendula", "section 4.2, Figure 3", "T = 50, omega 20, beta 0.4", seconds=(3, 3))
def figure3(found: Findings, quick: bool) -> None:
    """SHAKE with h = 0.05 and 0.025 and Z&S with h = 0.05 agree well."""
    problem, t1 = hx.models.chain(10), 50.0
    stiff = hx.models.penalized_chain(10, OMEGA)
    exact = rigid_reference(problem, 0.05, t1)
    table = found.table("Chain of ten to T = 50, omega 20", "method", "largest error of a coordinate")
    path, errors = found.panels("figure3", 2, 1, (3.4, 4.2), sharex=True)
    worst = {}
    for name, system, method, h, width in (
        ("SHAKE, $h = 0.05$", problem.system, hx.SHAKE(), 0.05, 3.6),
        ("SHAKE, $h = 0.025$", problem.system, hx.SHAKE(), 0.025, 2.2),
        ("Z&S, $h = 0.05$", stiff.system, hx.ZhangSkeel(BETA), 0.05, 0.8),
    ):
        sol = hx.simulate(system, method, problem.q0, problem.p0, dt=h, t1=t1, save_every=round(0.05 / h))
        error = np.max(np.abs(sol.q - exact.q), axis=(1, 2))
        worst[name] = float(np.max(error))
        table.add(name.replace("$", ""), worst[name])
        path.plot(sol.t, sol.q[:, 9, 0], lw=width, ls="-")  # curves overlap: draw each one narrower than the one below
        errors.semilogy(sol.t[1:], error[1:], lw=0.9, label=name)
    path.set(ylabel="$x_{10}$")
    errors.set(xlabel="$t$", ylabel="largest error", ylim=(1e-6, 0.1))
    legend(errors, 2)
    coarse, fine, penalty = worst.values()
    found.compare(
        "trajectories of SHAKE and Z&S",
        "good agreement",
        f"Z&S within {penalty:.3f} of the rigid motion, whose amplitude is {np.ptp(exact.q[:, 9, 0]):.1f}",
        penalty < 0.02 * np.ptp(exact.q[:, 9, 0]),
        correction=SIGN,
    )
    found.compare(
        "SHAKE at half the step",
        "(order two)",
        f"error {coarse / fine:.2f} times smaller",
        abs(coarse / fine - 4) < 0.5,
    )


ITEMS = (figure1, figure2, closed_form, figure3)
