"""The scene of a problem: plain data that survives JSON."""

import json

import holonomix as hx
from holonomix.core.scene import Bond, Frame, JointMark, Particles, Plane, Polyline, Scene, ShapeMark


def test_a_scene_survives_json():
    scene = Scene(
        dimension=3,
        length_unit="m",
        particles=(Particles((0, 1), radius=0.1, species="O", color="#ff0000"),),
        bonds=(Bond(0, -1, "spring"),),
        frames=(Frame("crank", 0, (1, 2, 3), (ShapeMark("box", (1.0, 2.0, 3.0)),)),),
        joints=(JointMark("hinge", "revolute", None, (0.0, 0.0, 0.0), (0.0, 1.0, 0.0)),),
        polylines=(Polyline((0, 1, 2), closed=True),),
        planes=(Plane((0.0, 0.0, 0.0), (0.0, 0.0, 1.0), "floor"),),
        anchors=((1.0, 2.0, 3.0),),
    )
    assert Scene.from_dict(json.loads(json.dumps(scene.as_dict()))) == scene


def test_a_problem_carries_its_scene():
    problem = hx.models.spherical_pendulum()
    assert problem.scene is None
    assert hx.Problem(problem.system, problem.q0, problem.p0, 0.1, 1.0, scene=Scene()).scene == Scene()
