"""Links of URDF files that have no mass, or an inertia that no body has."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import holonomix as hx
from holonomix.build.mechanisms.bodies import repair_inertia
from holonomix.build.mechanisms.xml_files import RepairedWarning

from .robots import joint, link

GOOD = (0.02, 0.03, 0.04, 0.001, 0.0, 0.002)
ZERO = (0.0,) * 3
# kinds, places and axes of joints from the base to the arm, with a link without mass between each two
CHAINS = {
    "universal": [("continuous", (0.1, 0, 0.3), (1, 0, 0)), ("continuous", ZERO, (0, 1, 0))],
    "leaning axes": [("continuous", (0.1, 0, 0.3), (1, 0, 0)), ("continuous", ZERO, (0.4, 1, 0.2))],
    "ball": [("continuous", (0.1, 0, 0.3), (0, 0, 1)), *[("continuous", ZERO, x) for x in ((1, 0, 0), (0, -1, 0))]],
    "two lines": [("continuous", (0.1, 0, 0.3), (0, 1, 0)), ("continuous", (0.1, 0.3, -0.2), (1, 0.2, 0.5))],
    "parallel lines": [("continuous", (0.1, 0, 0.3), (0, 1, 0)), ("continuous", (0.1, 0.3, -0.2), (0, 1, 0))],
    "three lines": [
        ("continuous", (0.1, 0, 0.3), (0, 1, 0)),
        ("continuous", (0.1, 0.3, -0.2), (1, 0.2, 0.5)),
        ("continuous", (-0.1, 0.05, 0.1), (0.3, 0.1, -1)),
    ],
    "three leaning axes": [("continuous", ZERO, x) for x in ((1, 0, 0), (0.4, 1, 0.2), (0, 0.2, 1))],
    "slide and hinge": [("prismatic", (0.1, 0, 0.3), (0, 1, 0.5)), ("continuous", ZERO, (1, 0, 0))],
}


def chain(parts, between="", base='<link name="base"/>'):
    """A robot with an arm behind a chain of joints and a hand on it; `between` is what each link on the way has."""
    out, last = [base], "base"
    for k, (kind, xyz, axis) in enumerate(parts):
        name = "arm" if k == len(parts) - 1 else f"between {k}"
        out.append(link("arm", 2.0, (0.1, 0, -0.2), GOOD) if name == "arm" else f'<link name="{name}">{between}</link>')
        limit = '<limit lower="-9" upper="9" effort="9" velocity="9"/>' if kind == "prismatic" else ""
        out.append(joint(f"j{k}", kind, last, name, xyz, (0.1, 0.2, 0.3) if k == 0 else ZERO, axis, limit))
        last = name
    out += [
        link("hand", 0.5, (0, 0.1, 0.1), GOOD),
        joint("wrist", "continuous", "arm", "hand", (0, 0, -0.4), ZERO, (0, 1, 0)),
    ]
    return f'<robot name="r">{"".join(out)}</robot>'


def light(mass):
    moments = " ".join(f'{key}="{0.1 * mass}"' for key in ("ixx", "iyy", "izz"))
    return f'<inertial><mass value="{mass}"/><inertia {moments}/></inertial>'


def load(tmp_path, text, **options):
    path = tmp_path / "robot.urdf"
    path.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return hx.Mechanism.from_urdf(path, **options)


@pytest.mark.parametrize("case", CHAINS)
def test_links_without_mass_become_part_of_a_joint(tmp_path, case):
    """Poses are those of the file with light links, and accelerations their limit."""
    parts = CHAINS[case]
    names = [*(f"j{k}" for k in range(len(parts))), "wrist"]
    x = dict(zip(names, (0.4, -0.7, 0.5, 0.3), strict=False))
    v = dict(zip(names, (0.6, 1.1, -0.8, 0.9), strict=False))
    m = load(tmp_path, chain(parts), positions=x, velocities=v)
    assert [b.name for b in m.bodies] == ["arm", "hand"] and [j.name for j in m.joints] == names
    problem = m.problem()
    assert m.redundancy.degrees_of_freedom == len(names) and not m.redundancy.dropped
    row = SimpleNamespace(q=np.asarray(problem.q0)[None], p=np.asarray(problem.p0)[None])
    of = lambda j: (j.distance if j.kind == "prismatic" else j.angle)(row)[0]
    np.testing.assert_allclose([of(m[name]) for name in names], list(x.values()), rtol=0, atol=1e-13)
    np.testing.assert_allclose([m[name].rate(row)[0] for name in names], list(v.values()), rtol=0, atol=1e-12)
    found, gaps = m.acceleration(x, v), []
    for mass in (1e-4, 1e-5):
        other = load(tmp_path, chain(parts, light(mass)), positions=x, velocities=v)
        for name in ("arm", "hand"):
            for key in ("origin", "attitude", "velocity0", "spin0"):
                np.testing.assert_allclose(getattr(m[name], key), getattr(other[name], key), rtol=0, atol=1e-12)
        there = other.acceleration(x, v)
        gaps.append(max(abs(found[name] - there[name]) for name in names) / max(abs(a) for a in there.values()))
    assert gaps[0] < 1e-2 and gaps[1] == pytest.approx(gaps[0] / 10, rel=0.05)


def test_chains_that_are_no_joint_are_named(tmp_path):
    lines = [("continuous", (0.1 * k, 0, 0), axis) for k, axis in enumerate(((1, 0, 0), (0, 1, 0), (1, 0, 0)))]
    with pytest.raises(
        hx.InputError, match="joint 'j0': hinge . hinge . hinge between 'ground' and 'arm' make no joint"
    ):
        load(tmp_path, chain(lines))
    planar = [("planar", ZERO, (0, 0, 1)), ("continuous", ZERO, (0, 1, 0))]
    with pytest.raises(hx.InputError, match=r"no mass between joint 'j0' \(planar\) and the next one"):
        load(tmp_path, chain(planar))
    two = chain(CHAINS["universal"]).replace('<parent link="arm"/>', '<parent link="between 0"/>')
    with pytest.raises(
        hx.InputError, match="link 'between 0' moves but has no mass, and carries the joints 'j1', 'wrist'"
    ):
        load(tmp_path, two)


def test_a_floating_joint_from_a_root_without_mass_makes_a_free_base(tmp_path):
    text = f'<robot name="r"><link name="world"/>{link("trunk", 1.0, ZERO, GOOD)}' + joint(
        "float", "floating", "world", "trunk", (0, 0, 1), ZERO, (0, 0, 1)
    )
    for base in ("free", "fixed"):
        m = load(tmp_path, f"{text}</robot>", base=base)
        np.testing.assert_array_equal(m["trunk"].origin, (0, 0, 1))
        m.problem()
        assert m.redundancy.degrees_of_freedom == 6


def test_blank_lines_before_the_declaration(tmp_path):
    text = chain(CHAINS["universal"])
    assert load(tmp_path, f'\n \n<?xml version="1.0"?>\n{text}').bodies[0].name == "arm"
    with pytest.raises(hx.InputError, match="not an XML file"):
        load(tmp_path, f'x<?xml version="1.0"?>\n{text}')


def test_impossible_inertias_are_refused_with_numbers_or_repaired(tmp_path):
    text = chain([("continuous", ZERO, (0, 1, 0))]).replace('iyy="0.03"', 'iyy="0.07"', 1)
    with pytest.raises(hx.InputError, match=r"body 'arm'.* 0\.0[0-9, .]* violate .*; inertia=\"repair\" takes"):
        load(tmp_path, text)
    path = tmp_path / "robot.urdf"
    path.write_text(text)
    with pytest.warns(RepairedWarning, match="link 'arm': principal moments .* to "):
        m = hx.Mechanism.from_urdf(path, inertia="repair")
    assert len(m.repaired) == 1 and m["arm"].kind == "plate"
    assert m["hand"].kind == "rigid"  # a good one stays
    m.problem()
    with pytest.raises(hx.InputError, match='inertia must be "refuse" or "repair"'):
        load(tmp_path, text, inertia="mend")


def test_the_least_repair():
    """The largest moment stays, the others grow by the excess; rods and points get a thickness; good ones stay."""
    new, text = repair_inertia(1.0, np.diag([1.0, 2.0, 3.2]))
    np.testing.assert_allclose(np.linalg.eigvalsh(new), [1.1, 2.1, 3.2], rtol=1e-14)
    assert text == "principal moments 1, 2, 3.2 to 1.1, 2.1, 3.2"
    new, _ = repair_inertia(1.0, np.diag([1.0, 1.0, 0.0]))
    np.testing.assert_allclose(np.linalg.eigvalsh(new), [2e-4, 1.0001, 1.0001], rtol=1e-12)
    new, _ = repair_inertia(1000 * 4 / 3 * np.pi * 0.1**3, np.zeros((3, 3)))
    np.testing.assert_allclose(new, 0.4 * 1000 * 4 / 3 * np.pi * 0.1**5 * np.eye(3), rtol=1e-12)
    good = np.diag([0.02, 0.03, 0.04]) + 0.001
    new, text = repair_inertia(1.0, good)
    assert new is good and text == ""


def test_zero_inertia_is_repaired(tmp_path):
    text = chain([("continuous", ZERO, (0, 1, 0))]).replace(
        link("arm", 2.0, (0.1, 0, -0.2), GOOD), link("arm", 2.0, ZERO, (0.0,) * 6)
    )
    with pytest.raises(hx.InputError, match='its inertia is zero; .* inertia="repair"'):
        load(tmp_path, text)
    m = load(tmp_path, text, inertia="repair")
    assert m["arm"].kind == "rigid" and "0, 0, 0 to" in m.repaired[0]
