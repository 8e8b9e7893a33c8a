"""Velocities at the start: given ones are kept, the others follow, and contradictions are named."""

from types import SimpleNamespace

import numpy as np
import pytest

import holonomix as hx

from .robots import joint, link


def start_of(m):
    """One row of a solution, the start; the joints allow its velocities."""
    problem = m.problem()
    q, p = np.asarray(problem.q0), np.asarray(problem.p0)
    v, rows = (p / m.equations.masses[:, None]).reshape(-1), m.equations.jacobian(q)
    assert np.abs(rows @ v).max() <= 1e-13 * (np.abs(rows) @ np.abs(v)).max()
    return SimpleNamespace(t=np.zeros(1), q=q[None], p=p[None])


def slider_crank(unit=1.0, weight=1.0, crank=None, slider=None, angle=0.7, r=1.0, l=3.0):
    m = hx.Mechanism(dimensions=2)
    pin = r * unit * np.array([np.cos(angle), np.sin(angle)])
    end = np.array([pin[0] + np.sqrt((l * unit) ** 2 - pin[1] ** 2), 0.0])
    tilt = np.arctan2(-pin[1], end[0] - pin[0])
    a = m.body(
        "crank",
        shape=hx.mechanisms.Rod(r * unit),
        mass=weight,
        position=pin / 2,
        rotation=angle,
        angular_velocity=crank,
    )
    b = m.body("rod", shape=hx.mechanisms.Rod(l * unit), mass=2 * weight, position=(pin + end) / 2, rotation=tilt)
    c = m.body("slider", mass=4 * weight, inertia=weight * unit**2, position=end, velocity=slider)
    m.revolute("base", m.ground, a, at=(0, 0))
    m.revolute("pin", a, b, at=pin)
    m.revolute("wrist", b, c, at=end)
    m.prismatic("guide", m.ground, c, at=end, axis=(1, 0))
    return m


SHIFT = -np.sin(0.7) * (1 + np.cos(0.7) / np.sqrt(9 - np.sin(0.7) ** 2))  # slider velocity per crank rate, unit lengths
UNITS = [(1.0, 1.0, 1.0), (1e3, 1e3, 1e3), (1e9, 1e-24, 1e-9)]  # per m, kg and s: SI; mm, g, ms; others


@pytest.mark.parametrize(("unit", "weight", "time"), UNITS)
@pytest.mark.parametrize("which", ["crank", "slider", "both"])
def test_a_given_velocity_is_kept_and_the_others_follow(unit, weight, time, which):
    """A crank of 2 rad/s, or the slider's velocity that goes with it, or both, in several units."""
    rate = 2.0 / time
    given = {"crank": {"crank": rate}, "slider": {"slider": (rate * unit * SHIFT, 0.0)}}
    m = slider_crank(unit, weight, **(given["crank"] | given["slider"] if which == "both" else given[which]))
    row = start_of(m)
    assert m["crank"].angular_velocity(row)[0] == pytest.approx(rate, rel=1e-13)
    np.testing.assert_allclose(m["slider"].velocity(row)[0], [rate * unit * SHIFT, 0.0], rtol=1e-13, atol=1e-300)
    assert m["base"].rate(row)[0] == pytest.approx(rate, rel=1e-13)


@pytest.mark.parametrize(("unit", "weight", "time"), UNITS)
def test_given_velocities_that_contradict_are_named_with_the_gap(unit, weight, time):
    rate, push = 2.0 / time, 2.0 / time * unit * SHIFT
    text = (
        r"the velocity \(.*\) of body 'slider' by [\d.e+-]+ \(in the way: joint '(base|pin|wrist|guide)', joint.*"
        "Leave out what follows from the rest"
    )
    with pytest.raises(hx.InputError, match=r"misses the angular velocity .* of body 'crank' by .*, " + text) as found:
        slider_crank(unit, weight, crank=rate, slider=(1.01 * push, 0.0)).problem()
    part = str(found.value)
    gaps = [float(part.split(f"body '{name}' by ")[1].split(" ")[0].strip(",")) for name in ("crank", "slider")]
    # one freedom: the nearest motion lies between, so the two gaps add up to the contradiction
    assert gaps[0] / rate + gaps[1] / abs(1.01 * push) * 1.01 == pytest.approx(0.01, rel=2e-2)
    with pytest.raises(hx.InputError, match="misses the velocity .* of body 'slider'"):
        slider_crank(unit, weight, slider=(push, 0.1 * push)).problem()  # across its guide
    slider_crank(unit, weight, crank=rate, slider=((1 + 1e-9) * push, 0.0)).problem()  # rounded


def test_a_dead_point_cannot_start_by_its_slider():
    with pytest.raises(hx.InputError, match=r"velocity \(1, 0\) of body 'slider' by 1 .*dead point"):
        slider_crank(angle=0.0, slider=(1.0, 0.0)).problem()
    row = start_of(slider_crank(angle=0.0, slider=(0.0, 0.0), crank=2.0))
    assert np.abs(row.p).max() > 0.1


def test_drives_and_given_velocities():
    m = slider_crank(crank=2.0)
    m.drive(m["base"], lambda t: 2.0 * t)
    m.problem()
    m = slider_crank(crank=3.0)
    m.drive(m["base"], lambda t: 2.0 * t)
    with pytest.raises(hx.InputError, match=r"angular velocity 3 of body 'crank' by 1 .*'drive of base'"):
        m.problem()
    m = slider_crank()
    m.drive(m["base"], lambda t: 2.0 * t)
    m.drive(m["guide"], distance=lambda t: 5.0 * t)
    with pytest.raises(hx.InputError, match="its drives contradict each other or the joints at t = 0"):
        m.problem()


def bricard(**spins):
    m = hx.models.iftomm_a04(mechanism=True)
    for name, spin in spins.items():
        m.start_velocity(m[name.replace("_", " ")], angular_velocity=spin)
    return m


def test_a_redundant_loop_starts_as_some_of_its_bodies_say():
    """Bricard's linkage has one row too many: one rod's angular velocity alone, those of two, and a wrong one."""
    m = bricard()
    m.start_rate(m["hinge 0"], 1.5)
    row = start_of(m)
    spins = {f"rod_{k}": m[f"rod {k}"].angular_velocity(row)[0] for k in range(1, 6)}
    for names in (["rod_1"], ["rod_5"], ["rod_2", "rod_3"]):
        np.testing.assert_allclose(
            start_of(bricard(**{name: spins[name] for name in names})).p, row.p, rtol=0, atol=1e-12
        )
    with pytest.raises(hx.InputError, match="body 'rod 3'.*'hinge"):
        bricard(rod_1=spins["rod_1"], rod_3=1.1 * spins["rod_3"]).problem()


def test_what_is_not_given_stays_as_near_to_rest_as_possible():
    """The second bar of a double pendulum after a blow to the first: Lagrange's equations for impulses."""
    m = hx.Mechanism(dimensions=2)
    first, second = (
        m.body(x, shape=hx.mechanisms.Rod(1.0), mass=1.0, position=(k + 0.5, 0.0)) for k, x in enumerate("ab")
    )
    m.revolute("A", m.ground, first, at=(0, 0))
    m.revolute("B", first, second, at=(1.0, 0))
    m.start_velocity(first, angular_velocity=2.0)
    # T_2 = (w + s/2)^2 / 2 + s^2 / 24 is least over s for s = -3 w / 2
    assert second.angular_velocity(start_of(m))[0] == pytest.approx(-3.0, rel=1e-13)
    free = hx.Mechanism()
    body = free.body("b", mass=1.0, inertia=[1, 2, 2.5], center=(0.1, 0.2, 0.3), velocity=(1.0, 2.0, 3.0))
    assert np.abs(body.angular_velocity(start_of(free))).max() < 1e-15  # nor does a free body begin to turn


def test_plates_and_rods_and_configured_rates():
    m = hx.Mechanism()
    plate = m.body(
        "plate", shape=hx.mechanisms.Plate(1.0, 2.0), mass=1.0, center=(0.1, 0.2, 0.3), rotation=(0.9, 0.1, 0.3, -0.2)
    )
    m.spherical("ball", m.ground, plate, at=plate.origin + plate.attitude @ [0.5, 0, 0])
    rod = m.body("rod", shape=hx.mechanisms.Rod(1.0), mass=1.0, position=(5.5, 0, 0), angular_velocity=(4.0, 2.0, 3.0))
    m.spherical("end", m.ground, rod, at=(5.0, 0, 0))
    spin = np.array([0.3, -0.2, 0.5])
    m.start_velocity(plate, np.cross(spin, -plate.attitude @ [0.5, 0, 0]), spin)
    row = start_of(m)
    np.testing.assert_allclose(plate.angular_velocity(row)[0], spin, rtol=0, atol=1e-14)
    np.testing.assert_allclose(rod.angular_velocity(row)[0], [0.0, 2.0, 3.0], rtol=0, atol=1e-14)  # not about its axis
    with pytest.raises(hx.InputError, match="'ground' is a ground: it cannot be given a velocity"):
        m.start_velocity(m.ground, (1.0, 0, 0))
    crank = slider_crank(crank=2.0).configure({"base": 0.1})
    assert crank["crank"].angular_velocity(start_of(crank))[0] == pytest.approx(2.0, rel=1e-13)
    crank.configure({"base": 0.1}, {"base": -1.0})  # in the place of 2
    assert crank["crank"].angular_velocity(start_of(crank))[0] == pytest.approx(-1.0, rel=1e-13)
    crank.configure({"base": 0.2})
    assert crank["base"].rate(start_of(crank))[0] == pytest.approx(-1.0, rel=1e-13)


def test_a_screw_and_a_floating_base_and_free_masses(tmp_path):
    m = hx.Mechanism()
    nut = m.body("nut", mass=1.0, inertia=[1, 1, 1], velocity=(0, 0, 0.1))
    m.screw("thread", m.ground, nut, at=(0, 0, 0), axis=(0, 0, 1), pitch=0.02)
    np.testing.assert_allclose(nut.angular_velocity(start_of(m))[0], [0, 0, 10 * np.pi], rtol=1e-13, atol=1e-13)
    path = tmp_path / "satellite.urdf"
    parts = [link(name, 1.0, (0.1, 0, 0), (0.02, 0.03, 0.04, 0.001, 0, 0.002)) for name in ("bus", "arm")]
    parts.append(joint("A", "continuous", "bus", "arm", (0.3, 0, 0), (0, 0, 0), (0, 1, 0)))
    path.write_text(f'<robot name="satellite">{"".join(parts)}</robot>')
    free = hx.Mechanism.from_urdf(path, base="free", positions={"A": 0.4}, velocities={"A": 3.0})
    free.start_velocity(free["bus"], (0.1, 0.2, 0.3), (0.5, -1.0, 0.7))
    row = start_of(free)
    np.testing.assert_allclose(free["bus"].velocity(row)[0], (0.1, 0.2, 0.3), rtol=1e-13)
    np.testing.assert_allclose(free["bus"].angular_velocity(row)[0], (0.5, -1.0, 0.7), rtol=1e-13)
    assert free["A"].rate(row)[0] == pytest.approx(3.0, rel=1e-13)
    dust = hx.Mechanism(dimensions=2)
    a, b = (dust.point_mass(mass=x, position=(x, 0), velocity=(0, x)) for x in (1.0, 2.0))
    dust.spring(a, (0, 0), b, (0, 0), stiffness=6.0)
    np.testing.assert_array_equal(dust.problem().p0, [[0, 1.0], [0, 4.0]])  # no row at all
    assert dust.redundancy.degrees_of_freedom == 4
