"""The cell's physics: a Panda with its hand at the edge of a table, and a cube; from robosuite's model files.

World frame = robot base frame: origin at the robot's base, x forward, z up, table top at z = 0.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

ARM_JOINTS = 7
HOME = np.array([0.0, np.pi / 8, 0.0, -np.pi * 5 / 8, 0.0, np.pi * 3 / 4, np.pi / 4])
"""Joint positions an episode starts from, rad: the tool looks straight down, 0.615 m in front of the base."""
CUBE_HALF_SIZE = 0.02
MAX_WIDTH = 0.08
TIMESTEP = 0.002

JOINT_LOWER = np.array([-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973])
JOINT_UPPER = np.array([2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973])
"""rad, as in the model file and the Panda's data sheet."""
JOINT_MAX_VELOCITY = np.array([2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61])
"""rad/s, from the Panda's data sheet."""
_STIFFNESS = np.array([1500.0, 1500.0, 1500.0, 1500.0, 600.0, 600.0, 400.0])
_DAMPING = np.array([140.0, 140.0, 115.0, 100.0, 35.0, 31.0, 18.0])
"""Joint impedance, Nm/rad and Nm s/rad. About critical for the inertias of robosuite's links."""
_TORQUE = np.array([87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0])
_FINGER_STIFFNESS, _FINGER_DAMPING, _FINGER_FORCE = 2000.0, 60.0, 30.0
_CUBE_MASS = 8 * CUBE_HALF_SIZE**3 * 1000.0


def _assets() -> Path:
    found = importlib.util.find_spec("robosuite")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("the cell needs robosuite's model files; run it in the robosuite environment")
    return Path(next(iter(found.submodule_search_locations))) / "models" / "assets"


def _without_visuals(spec: Any) -> Any:
    """Only what collides: half a second less to compile, and nothing is rendered here."""
    for geom in list(spec.geoms):
        if geom.contype == 0 and geom.conaffinity == 0:
            spec.delete(geom)
    used = {geom.meshname for geom in spec.geoms}
    for mesh in list(spec.meshes):
        if mesh.name not in used:
            spec.delete(mesh)
    for kind in (spec.materials, spec.cameras, spec.sensors):
        for item in list(kind):
            spec.delete(item)
    return spec


def _robot() -> Any:
    folder = _assets()
    arm = _without_visuals(mujoco.MjSpec.from_file(str(folder / "robots" / "panda" / "robot.xml")))
    hand = _without_visuals(mujoco.MjSpec.from_file(str(folder / "grippers" / "panda_gripper.xml")))
    # Absolute, because each of the two files names its meshes relative to its own folder.
    for spec, origin in ((arm, folder / "robots" / "panda"), (hand, folder / "grippers")):
        for mesh in spec.meshes:
            mesh.file = str(origin / mesh.file)
    frame = arm.body("right_hand").add_frame()
    frame.attach_body(hand.body("right_gripper"), "", "")
    return arm


def _set_drives(spec: Any) -> None:
    """Joint impedance in place of bare motors; the motor's own friction in the fingers is left out."""
    for actuator in list(spec.actuators):
        spec.delete(actuator)
    for index in range(ARM_JOINTS):
        _add_servo(spec, f"joint{index + 1}", _STIFFNESS[index], _DAMPING[index], _TORQUE[index])
    for name in ("finger_joint1", "finger_joint2"):
        joint = spec.joint(name)
        joint.armature, joint.damping, joint.frictionloss = 0.1, 0.0, 0.0
        _add_servo(spec, name, _FINGER_STIFFNESS, _FINGER_DAMPING, _FINGER_FORCE)


def _add_servo(spec: Any, joint: str, stiffness: float, damping: float, force: float) -> None:
    # MuJoCo's affine servo: force = stiffness * (ctrl - q) - damping * qvel.
    spec.add_actuator(
        name=joint,
        target=joint,
        trntype=mujoco.mjtTrn.mjTRN_JOINT,
        gaintype=mujoco.mjtGain.mjGAIN_FIXED,
        biastype=mujoco.mjtBias.mjBIAS_AFFINE,
        gainprm=[stiffness] + [0.0] * 9,
        biasprm=[0.0, -stiffness, -damping] + [0.0] * 7,
        forcelimited=1,
        forcerange=[-force, force],
    )


def _add_scene(spec: Any) -> None:
    spec.worldbody.add_geom(
        name="table",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[0.6, 0.8, 0.05],
        pos=[0.6, 0.0, -0.05],
        friction=[1, 0.005, 0.0001],
    )
    cube = spec.worldbody.add_body(name="cube", pos=[0.615, 0.0, CUBE_HALF_SIZE])
    cube.add_freejoint(name="cube")
    cube.add_geom(
        name="cube",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[CUBE_HALF_SIZE] * 3,
        mass=_CUBE_MASS,
        friction=[1, 0.005, 0.0001],
        condim=4,
    )


def _set_collisions(spec: Any) -> None:
    """Hand, fingers and cube collide with each other and the table; the arm's links with the table only."""
    for geom in spec.geoms:
        if geom.name in ("cube", "table"):
            geom.contype, geom.conaffinity = 1, 1
        elif geom.name == "link0_collision":
            geom.contype, geom.conaffinity = 0, 0
        else:
            geom.contype, geom.conaffinity = 0, 1


def build_model() -> Any:
    """A compiled ``mujoco.MjModel``; actuators are joint servos in the order joint1 … joint7, left, right finger."""
    spec = _robot()
    _set_drives(spec)
    _add_scene(spec)
    _set_collisions(spec)
    for body in spec.bodies:
        if body.name not in ("world", "cube"):
            body.gravcomp = 1.0
    option = spec.option
    option.timestep = TIMESTEP
    option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    option.impratio = 10.0
    return spec.compile()
