"""ManiSkill 3 behind :class:`landbridge.env.protocol.SingleEnv`: state observations, physical units, lean steps.

What a policy sees (tensor ``state``) is what a robot cell can measure; what only a simulator knows is in
``privileged``. Positions are in the robot's base frame. Randomisation options exist for policies that are to leave
the simulator; all are off by default and drawn from the episode's seed.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from math import isfinite
from typing import Any

import numpy as np

from landbridge.config import from_mapping
from landbridge.env.protocol import ChunkResult, Observation, ResetResult
from landbridge.errors import FailedPrecondition, InvalidArgument
from sim_server.adapters.checks import require_finite, split_replay
from sim_server.adapters.maniskill_contract import PRIVILEGED_SIZE, STATE_SIZE, contract_for
from sim_server.adapters.maniskill_headless import disable_rendering
from sim_server.adapters.maniskill_options import ManiSkillOptions, Randomisation
from sim_server.adapters.maniskill_panda import ARM_JOINTS, ARM_LIMIT, REST, Commands, LeanPanda, Reading
from sim_server.adapters.maniskill_scene import PhysicsScene
from sim_server.adapters.maniskill_tasks import TASKS

_SEEDS = 2**31
"""ManiSkill's seeds; larger ones wrap."""


def make(task: str, options: dict[str, Any]) -> ManiSkillEnv:
    """An environment for ``task`` (see ``maniskill_tasks.TASKS``); unknown options are errors."""
    if task not in TASKS:
        close = difflib.get_close_matches(task, TASKS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise InvalidArgument(f"ManiSkill task {task!r} has no entry; {hint}there are {sorted(TASKS)}", field="task")
    return ManiSkillEnv(task, from_mapping(ManiSkillOptions, options, "options"))


class ManiSkillEnv:
    """One ManiSkill environment. It touches no global random state, so others may live in the same process."""

    can_render = False
    can_save_state = True

    def __init__(self, task: str, options: ManiSkillOptions) -> None:
        disable_rendering()
        import gymnasium
        import mani_skill.envs  # noqa: F401  (registers the tasks)
        import sapien
        import torch

        torch.set_num_threads(1)
        made = gymnasium.make(
            task, obs_mode="state", control_mode="pd_ee_delta_pos", sim_backend="physx_cpu", render_backend="none"
        )
        env: Any = made.unwrapped
        env.reset(seed=0)  # builds the scene
        self._env = env
        self._pose, self._generator = sapien.Pose, torch.Generator()
        self._start_noise = np.random.RandomState()  # seeded anew it costs a tenth of a new one
        self.options = options
        self.max_episode_steps = options.max_episode_steps
        self._physics = PhysicsScene(env)
        self._panda = LeanPanda(env, self._physics)
        self._task = TASKS[task](env, options.goal_tolerance)
        self._table, self._table_pose = env.table_scene.table._objs[0], env.table_scene.table._objs[0].pose
        self._cube = self._task.cube.find_component_by_type(sapien.physx.PhysxRigidDynamicComponent)
        self._cube_mass, self._cube_inertia = self._cube.mass, self._cube.inertia
        self.contract = contract_for(task, self._task.instruction, options.action_limit)
        self._low, self._high = (bound.astype(np.float32) for bound in self.contract.action.bounds())
        self._targets = Commands(self._low, self._high)
        reach = np.full(3, ARM_LIMIT)
        self._altered_targets = Commands(np.append(-reach, self._low[3]), np.append(reach, self._high[3]))
        self._ended = "it has not been reset"

    def reset(self, seed: int, options: dict[str, Any]) -> ResetResult:
        """Start the episode of ``seed``: bit for bit where ManiSkill's ``reset(seed)`` starts it in a fresh
        process. There are no reset options; any is an error.
        """
        if options:
            raise InvalidArgument(f"reset options {sorted(options)}: this adapter has none", field="options")
        self._seed = seed
        self._log: list[np.ndarray] = []
        self._step = self._held = 0
        self._succeeded = self._grasped = False
        self._ended = ""
        self._random = Randomisation(self.options, seed)
        self._pending = self._random.pending()
        self._place(seed % _SEEDS)
        goal = self._task.goal.pose.p
        self._goal_world, self._goal = goal.tolist(), self._panda.in_base(goal)
        return ResetResult(self._observe(self._read()))

    def _place(self, seed: int) -> None:
        """The episode's start, in the order of ``BaseEnv.reset`` and ``TableSceneBuilder.initialize``."""
        self._physics.renew()
        self._cube.set_linear_velocity(np.zeros(3, np.float32))
        self._cube.set_angular_velocity(np.zeros(3, np.float32))
        self._table.pose = self._table_pose
        self._start_noise.seed(seed)
        qpos = self._start_noise.normal(0, self._env.robot_init_qpos_noise, len(REST)) + REST
        qpos[ARM_JOINTS:] = REST[ARM_JOINTS:]
        self._panda.place(qpos)
        self._panda.read_base()
        start = self._task.start(self._generator.manual_seed(seed))
        self._task.cube.pose = self._pose(*start.cube)
        self._task.goal.pose = self._pose(*start.goal)
        if self._random.mass_scale is not None:
            self._cube.mass = self._cube_mass * self._random.mass_scale
            self._cube.inertia = self._cube_inertia * self._random.mass_scale
        if self._random.friction is not None:
            self._rub(self._random.friction)

    def _rub(self, friction: float) -> None:
        """Give the cube a material of its own; ManiSkill's is shared by all that was given none."""
        import sapien

        for shape in self._cube.collision_shapes:
            restitution = shape.physical_material.restitution
            shape.physical_material = sapien.physx.PhysxMaterial(friction, friction, restitution)

    def step_chunk(self, actions: np.ndarray, evaluate_every_step: bool) -> ChunkResult:
        """See :class:`landbridge.env.protocol.SingleEnv`; ``actions`` [C, 4]."""
        if self._ended:
            raise FailedPrecondition(f"this environment cannot step: {self._ended}; call reset first")
        actions = np.asarray(actions, np.float32)
        require_finite(actions)
        length = len(actions)
        due = self._due(actions)
        rewards, evaluated = np.zeros(length, np.float32), np.zeros(length, bool)
        success = np.zeros(length, bool)
        last = min(length, self.max_episode_steps - self._step) - 1
        terminated = False
        for index in range(last + 1):
            self._move(due[index])
            if evaluate_every_step or index == last:
                reading = self._read()
                judged = self._task.judge(reading, self._goal_world)
                self._grasped = judged.grasped
                self._held = self._held + 1 if judged.success else 0
                succeeds = self._held >= self.options.hold_steps
                self._succeeded = self._succeeded or succeeds
                evaluated[index], success[index] = True, succeeds
                rewards[index] = judged.reward if self.options.reward == "normalized_dense" else succeeds
                if succeeds and self.options.terminate_on_success:
                    terminated, last = True, index
                    break
        self._log.append(actions[: last + 1].copy())
        return self._result(self._observe(reading), rewards, evaluated, success, last + 1, terminated)

    def _due(self, actions: np.ndarray) -> list[tuple[np.ndarray, float]]:
        """For each step of a chunk the displacement float32 [3] and the finger target that take effect then."""
        if self._random.alters_commands:
            clipped = np.minimum(np.maximum(actions, self._low), self._high)
            altered = self._random.commands(clipped, self._pending)
            goals = self._altered_targets(altered)  # a gain may lead beyond the contract's bounds
        else:
            goals = self._targets(actions)
        return list(zip(goals[:, :3], goals[:, 3].tolist(), strict=True))

    def _move(self, due: tuple[np.ndarray, float]) -> None:
        self._panda.control_step(*due)
        self._step += 1

    def _result(
        self,
        observation: Observation,
        rewards: np.ndarray,
        evaluated: np.ndarray,
        success: np.ndarray,
        executed: int,
        terminated: bool,
    ) -> ChunkResult:
        truncated = self._step >= self.max_episode_steps and not terminated
        finite = isfinite(observation["state"].sum()) and isfinite(observation["privileged"].sum())
        message = "" if finite else "the simulator's state is not finite"
        if terminated or truncated or not finite:
            self._ended = message or "its episode has ended"
        return ChunkResult(
            observation=observation,
            rewards=rewards,
            evaluated=evaluated,
            executed=executed,
            terminated=terminated and finite,
            truncated=truncated and finite,
            abandoned=not finite,
            success=success,
            success_once=self._succeeded,
            success_at_end=bool(success[executed - 1]),
            episode_step=self._step,
            message=message,
        )

    def _read(self) -> Reading:
        panda, cube = self._panda, self._cube.entity_pose
        robot = panda.articulation
        return Reading(robot.qpos, robot.qvel, panda.tcp.entity_pose.p, cube, self._physics.contacts)

    def _observe(self, reading: Reading) -> Observation:
        qpos, qvel, tcp, cube, _ = reading
        random, in_base = self._random, self._panda.in_base
        state = np.empty(STATE_SIZE, np.float32)
        state[0:7] = qpos[:ARM_JOINTS]
        state[7:14] = qvel[:ARM_JOINTS]
        state[14:17] = in_base(tcp)
        state[17] = qpos[7] + qpos[8]
        state[18:21] = in_base(cube.p)
        state[21:24] = self._goal
        if random.cube is not None:
            state[18:21] += random.cube[self._step]
        if random.velocity is not None:
            state[7:14] += random.velocity[self._step]
        privileged = np.empty(PRIVILEGED_SIZE, np.float32)
        privileged[0] = self._grasped
        privileged[1:5] = cube.q
        privileged[5:8] = self._cube.linear_velocity
        privileged[8] = self._step / self.max_episode_steps
        return {"state": state, "privileged": privileged}

    def render(self) -> np.ndarray:
        """State-only: there is no renderer in this process."""
        raise NotImplementedError("this ManiSkill worker runs without a graphics driver and renders nothing")

    def debug_geometry(self) -> dict[str, np.ndarray]:
        """For schematic drawings, base frame, metres, no noise: ``joints`` [n, 3] from base to tool, ``cube``, ``goal``
        [3] each.
        """
        cube = self._panda.in_base(self._cube.entity_pose.p)
        return {"joints": self._panda.link_positions(), "cube": cube, "goal": self._goal.copy()}

    def save_state(self) -> bytes:
        """Seed and actions so far: ManiSkill's own state is not exact, a replay is."""
        header = {**self._identity(), "seed": self._seed, "succeeded": self._succeeded, "grasped": self._grasped}
        header |= {"ended": self._ended, "held": self._held}
        return json.dumps(header).encode() + b"\n" + b"".join(chunk.tobytes() for chunk in self._log)

    def restore_state(self, state: bytes) -> Observation:
        """Replay up to the saved moment; bit-identical. Nothing on the way is evaluated."""
        saved, actions = split_replay(state, self._identity(), 4)
        self.reset(int(saved["seed"]), {})
        self._log.append(actions)
        for due in self._due(actions):
            self._move(due)
        self._succeeded, self._grasped, self._ended = saved["succeeded"], saved["grasped"], saved["ended"]
        self._held = int(saved["held"])
        return self._observe(self._read())

    def _identity(self) -> dict[str, Any]:
        """A state continues only under the same task and options."""
        return {"adapter": "maniskill", "task": self.contract.task, "options": dataclasses.asdict(self.options)}

    def close(self) -> None:
        """Free the simulator."""
        self._env.close()
