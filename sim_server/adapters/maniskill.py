"""ManiSkill 3 behind :class:`landbridge.env.protocol.SingleEnv`: state observations, physical units, lean steps.

What a policy sees (tensor ``state``) is what a robot cell can measure; what only a simulator knows is in
``privileged``. Positions are in the robot's base frame. Randomisation options exist for policies that are to leave
the simulator; all are off by default and drawn from the episode's seed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from landbridge.config import from_mapping
from landbridge.contract import Contract, DeltaReference, Quantity, Rotation, Segment, TensorSpec, Unit
from landbridge.env.protocol import ChunkResult, Observation, ResetResult
from landbridge.errors import InvalidArgument
from sim_server.adapters.maniskill_headless import disable_rendering
from sim_server.adapters.maniskill_panda import ARM_JOINTS, ARM_LIMIT, LeanPanda, normalise_action
from sim_server.adapters.maniskill_tasks import TASKS

CONTROL_RATE = 20.0
MAX_WIDTH = 0.08


@dataclass(frozen=True)
class ManiSkillOptions:
    """Options of the adapter; ranges are (low, high), drawn uniformly once an episode."""

    max_episode_steps: int = 50
    reward: str = "normalized_dense"
    """``normalized_dense`` (ManiSkill's, in [0, 1]) or ``sparse`` (1 on success)."""
    terminate_on_success: bool = True
    cube_offset_std: float = 0.0
    """Metres: a constant error of the measured cube position, drawn once an episode and axis."""
    cube_jitter_std: float = 0.0
    """Metres: noise on every reading of the cube's position."""
    velocity_noise_std: float = 0.0
    """rad/s: noise on every reading of the joint velocities."""
    action_gain: tuple[float, float] = (1.0, 1.0)
    """The displacement really commanded, relative to the one asked for."""
    action_delay: tuple[int, int] = (0, 0)
    """Control steps until a command takes effect."""
    seed_offset: int = field(default=0)
    """Added to every seed: separates the randomisation of otherwise equal runs."""


def make(task: str, options: dict[str, Any]) -> ManiSkillEnv:
    """An environment for ``task`` (see ``maniskill_tasks.TASKS``); unknown options are errors."""
    return ManiSkillEnv(task, from_mapping(ManiSkillOptions, options))


def contract_for(task: str, instruction: str) -> Contract:
    """The contract all table-top Panda tasks here share: 24 measured numbers, 4 commanded ones."""
    q = Quantity
    names = [
        ("qpos", 7, q.JOINT_POSITION, Unit.RADIAN, ""),
        ("qvel", 7, q.JOINT_VELOCITY, Unit.RADIAN_PER_SECOND, ""),
        ("tcp_position", 3, q.EE_POSITION, Unit.METRE, "base"),
        ("gripper_width", 1, q.GRIPPER, Unit.METRE, ""),
        ("cube_position", 3, q.OBJECT_POSITION, Unit.METRE, "base"),
        ("goal_position", 3, q.GOAL_POSITION, Unit.METRE, "base"),
    ]
    segments, start = [], 0
    for name, size, quantity, unit, frame in names:
        ends = (0.0, MAX_WIDTH) if quantity is q.GRIPPER else (None, None)
        segments.append(Segment(name, start, size, quantity, unit, frame, gripper_closed=ends[0], gripper_open=ends[1]))
        start += size
    limit = float(ARM_LIMIT)
    return Contract(
        observation=(
            TensorSpec("state", (start,), segments=tuple(segments), description="What the robot can measure."),
            TensorSpec(
                "privileged",
                (9,),
                privileged=True,
                segments=(
                    Segment("is_grasped", 0, 1, q.FLAG),
                    Segment("cube_rotation", 1, 4, q.OBJECT_ROTATION, frame="world", rotation=Rotation.QUATERNION_WXYZ),
                    Segment("cube_velocity", 5, 3, q.OTHER, Unit.METRE_PER_SECOND, "world"),
                    Segment("elapsed_fraction", 8, 1, q.OTHER),
                ),
                description="For a critic only: contact, true cube motion, share of the time limit used.",
            ),
        ),
        action=TensorSpec(
            "action",
            (4,),
            low=(-limit, -limit, -limit, 0.0),
            high=(limit, limit, limit, MAX_WIDTH),
            segments=(
                Segment(
                    "tcp_displacement",
                    0,
                    3,
                    q.EE_POSITION_DELTA,
                    Unit.METRE,
                    "base",
                    delta_reference=DeltaReference.MEASURED,
                ),
                Segment("gripper_width", 3, 1, q.GRIPPER, Unit.METRE, gripper_closed=0.0, gripper_open=MAX_WIDTH),
            ),
        ),
        control_rate_hz=CONTROL_RATE,
        task=task,
        embodiment="panda",
        instruction=instruction,
        notes=("The tool's rotation is held; a displacement is a target that a PD drive approaches.",),
    )


class ManiSkillEnv:
    """One ManiSkill environment. One a process: two in one process disturb each other's random state."""

    def __init__(self, task: str, options: ManiSkillOptions) -> None:
        if task not in TASKS:
            raise InvalidArgument(f"ManiSkill task {task!r} has no entry; there are {sorted(TASKS)}", field="task")
        if options.reward not in ("normalized_dense", "sparse"):
            raise InvalidArgument(
                f"reward {options.reward!r}: expected normalized_dense or sparse", field="options.reward"
            )
        disable_rendering()
        import gymnasium
        import mani_skill.envs  # noqa: F401  (registers the tasks)
        import torch

        torch.set_num_threads(1)
        made = gymnasium.make(
            task,
            obs_mode="state",
            control_mode="pd_ee_delta_pos",
            sim_backend="physx_cpu",
            render_backend="none",
        )
        env: Any = made.unwrapped
        self._env = env
        env.reset(seed=0)
        # reset() would compute an observation and an evaluation that nobody reads: half its time.
        env.get_obs = lambda *args, **kwargs: None
        env.get_info = dict
        self.options = options
        self.max_episode_steps = options.max_episode_steps
        self._panda = LeanPanda(self._env)
        self._task = TASKS[task](self._env)
        self.contract = contract_for(task, self._task.instruction)
        self._low, self._high = (bound.astype(np.float32) for bound in self.contract.action.bounds())
        self._seed = 0
        self._log: list[np.ndarray] = []

    def reset(self, seed: int, options: dict[str, Any]) -> ResetResult:
        """Start the episode of ``seed``. No reset options exist; any is an error."""
        if options:
            raise InvalidArgument(
                f"reset options {sorted(options)} are unknown; this adapter has none", field="options"
            )
        self._seed = seed
        self._log = []
        self._env.reset(seed=[(seed + self.options.seed_offset) % 2**31])
        self._panda.read_base()
        self._step = 0
        self._succeeded = False
        self._grasped = False
        self._draw_randomisation(seed)
        self._goal = self._panda.in_base(self._task.goal.pose.p)
        self._cube = next(c for c in self._task.cube.components if hasattr(c, "linear_velocity"))
        return ResetResult(self._observe())

    def _draw_randomisation(self, seed: int) -> None:
        options = self.options
        rng = np.random.Generator(np.random.Philox(key=[seed, options.seed_offset]))
        self._rng = rng
        self._offset = rng.normal(0.0, 1.0, 3).astype(np.float32) * np.float32(options.cube_offset_std)
        self._gain = np.float32(rng.uniform(*options.action_gain))
        delay = int(rng.integers(options.action_delay[0], options.action_delay[1] + 1))
        neutral = np.array([0, 0, 0, MAX_WIDTH], np.float32)
        self._pending = [neutral] * delay

    def step_chunk(self, actions: np.ndarray, evaluate_every_step: bool) -> ChunkResult:
        """See :class:`landbridge.env.protocol.SingleEnv`; ``actions`` [C, 4]."""
        actions = np.asarray(actions, np.float32)
        if not np.isfinite(actions).all():
            where = tuple(int(i) for i in np.argwhere(~np.isfinite(actions))[0])
            raise InvalidArgument(f"actions{list(where)} is not finite; nothing was executed", field=f"actions{where}")
        clipped = np.clip(actions, self._low, self._high)
        length = len(actions)
        rewards, evaluated = np.zeros(length, np.float32), np.zeros(length, bool)
        success = np.zeros(length, bool)
        executed, terminated, truncated = 0, False, False
        while executed < length and not (terminated or truncated):
            self._log.append(actions[executed])
            self._panda.control_step(self._command(clipped[executed]))
            self._step += 1
            truncated = self._step >= self.max_episode_steps
            if evaluate_every_step or truncated or executed == length - 1:
                judged = self._judge()
                evaluated[executed], success[executed] = True, judged.success
                rewards[executed] = judged.reward if self.options.reward == "normalized_dense" else judged.success
                terminated = judged.success and self.options.terminate_on_success
            executed += 1
        last = executed - 1
        self._succeeded |= bool(success[:executed].any())
        observation = self._observe()
        finite = all(np.isfinite(value).all() for value in observation.values())
        return ChunkResult(
            observation=observation,
            rewards=rewards,
            evaluated=evaluated,
            executed=executed,
            terminated=terminated,
            truncated=truncated and not terminated,
            abandoned=not finite,
            success=success,
            success_once=self._succeeded,
            success_at_end=bool(success[last]),
            episode_step=self._step,
            message="" if finite else "the simulator's state is not finite",
        )

    def _command(self, action: np.ndarray) -> np.ndarray:
        self._pending.append(action)
        due = self._pending.pop(0)
        if self._gain != 1:
            due = due.copy()
            due[:3] *= self._gain
        return normalise_action(due)

    def _judge(self) -> Any:
        judged = self._task.judge(
            self._panda, self._task.cube.pose.p, self._panda.articulation.qvel, self._panda.tcp.entity_pose.p
        )
        self._grasped = judged.grasped
        return judged

    def _observe(self) -> Observation:
        panda, options = self._panda, self.options
        qpos, qvel = panda.articulation.qpos, panda.articulation.qvel
        cube = self._task.cube.pose
        state = np.empty(24, np.float32)
        state[0:7] = qpos[:ARM_JOINTS]
        state[7:14] = qvel[:ARM_JOINTS]
        state[14:17] = panda.tcp_in_base()
        state[17] = qpos[7] + qpos[8]
        state[18:21] = panda.in_base(cube.p)
        state[21:24] = self._goal
        if options.cube_offset_std or options.cube_jitter_std:
            jitter = self._rng.normal(0.0, 1.0, 3).astype(np.float32)
            state[18:21] += self._offset + jitter * np.float32(options.cube_jitter_std)
        if options.velocity_noise_std:
            noise = self._rng.normal(0.0, 1.0, ARM_JOINTS).astype(np.float32)
            state[7:14] += noise * np.float32(options.velocity_noise_std)
        privileged = np.empty(9, np.float32)
        privileged[0] = self._grasped
        privileged[1:5] = cube.q
        privileged[5:8] = self._cube.linear_velocity
        privileged[8] = self._step / self.max_episode_steps
        return {"state": state, "privileged": privileged}

    def render(self) -> np.ndarray:
        """State-only: there is no renderer in this process."""
        raise NotImplementedError("this ManiSkill worker runs without a graphics driver and renders nothing")

    def geometry(self) -> dict[str, np.ndarray]:
        """For schematic drawings, base frame, metres: ``links`` [n, 3], ``cube`` [3], ``goal`` [3]."""
        cube = self._panda.in_base(self._task.cube.pose.p)
        return {"links": self._panda.link_positions(), "cube": cube, "goal": self._goal}

    def save_state(self) -> bytes:
        """Seed and actions so far: ManiSkill's own state is not exact, a replay is."""
        actions = np.asarray(self._log, np.float32).reshape(-1, 4)
        header = json.dumps({"adapter": "maniskill", "task": self.contract.task, "seed": self._seed})
        return header.encode() + b"\n" + actions.tobytes()

    def restore_state(self, state: bytes) -> Observation:
        """Replay up to the saved moment; bit-identical. Evaluation happens on the last step only."""
        header, _, raw = state.partition(b"\n")
        meta = json.loads(header)
        if (meta.get("adapter"), meta.get("task")) != ("maniskill", self.contract.task):
            raise InvalidArgument(f"a state of maniskill:{self.contract.task} is expected, {meta} came", field="state")
        observation = self.reset(int(meta["seed"]), {}).observation
        actions = np.frombuffer(raw, np.float32).reshape(-1, 4)
        if len(actions):
            observation = self.step_chunk(actions, True).observation
        return observation

    def close(self) -> None:
        """Free the simulator."""
        self._env.close()
