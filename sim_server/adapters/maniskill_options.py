"""Options of the ManiSkill adapter, and what they randomise in an episode.

Everything random is drawn from the episode's seed when it starts, one row a control step where it changes from
reading to reading: an episode does not depend on how its steps are cut into chunks, and a replay meets the same noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from landbridge.config import option
from sim_server.adapters.maniskill_contract import CONTROL_RATE, MAX_WIDTH
from sim_server.adapters.maniskill_panda import ARM_JOINTS

_RANGES = ("action_gain", "action_delay_steps", "gripper_speed", "cube_friction", "cube_mass_scale")
_RANDOM = ("position_noise", "position_jitter", "velocity_noise", *_RANGES)


@dataclass(frozen=True)
class ManiSkillOptions:
    """Options of the adapter. Ranges are (low, high), drawn uniformly once an episode; the defaults change nothing."""

    max_episode_steps: int = option(50, "time limit in control steps", minimum=1)
    reward: str = option(
        "normalized_dense",
        "ManiSkill's dense reward in [0, 1], or 1 on success",
        choices=("normalized_dense", "sparse"),
    )
    terminate_on_success: bool = option(True, "success ends the episode")
    goal_tolerance: float = option(
        1.0, "share of ManiSkill's goal radius that counts; less trains a policy to spare", minimum=0.01, maximum=1.0
    )
    hold_steps: int = option(
        1, "steps looked at, one after the other, that success must last to count; more teaches to stay", minimum=1
    )
    action_limit: float = option(0.1, "largest displacement a step, metres an axis", minimum=0.001, maximum=0.1)
    position_noise: float = option(0.0, "std of the cube position's constant error in an episode, metres", minimum=0.0)
    position_jitter: float = option(0.0, "std of the noise on every reading of it, metres", minimum=0.0)
    velocity_noise: float = option(0.0, "std of the noise on every reading of the joint velocities, rad/s", minimum=0.0)
    action_gain: tuple[float, float] = option((1.0, 1.0), "displacement commanded over asked for", minimum=0.0)
    action_delay_steps: tuple[int, int] = option((0, 0), "control steps until a command takes effect", minimum=0)
    gripper_speed: tuple[float, float] | None = option(
        None, "how fast the opening width's target may change, m/s; none: at once, as in ManiSkill", minimum=0.01
    )
    cube_friction: tuple[float, float] | None = option(
        None, "friction coefficient of the cube; none: ManiSkill's", minimum=0.0
    )
    cube_mass_scale: tuple[float, float] | None = option(
        None, "mass of the cube over ManiSkill's; none: unchanged", minimum=0.01
    )

    @cached_property
    def randomises(self) -> bool:
        """Is any randomisation on?"""
        fixed = ManiSkillOptions()
        return any(getattr(self, name) != getattr(fixed, name) for name in _RANDOM)

    def __post_init__(self) -> None:
        for name in _RANGES:
            bounds = getattr(self, name)
            if bounds is not None and bounds[0] > bounds[1]:
                raise ValueError(f"{name}: a range is (low, high), {bounds} is not")


@dataclass
class Pending:
    """Commands on their way."""

    delayed: list[np.ndarray]
    """Asked for and not yet in effect, oldest first."""
    width: float = MAX_WIDTH
    """Where the gripper's target stands, metres."""


class Randomisation:
    """What an episode's seed decided."""

    def __init__(self, options: ManiSkillOptions, seed: int) -> None:
        self.gain, self.delay = np.float32(1), 0
        self.width_step: float | None = None
        """Largest change of the gripper's target a control step, metres."""
        self.friction: float | None = None
        self.mass_scale: float | None = None
        self.cube: np.ndarray | None = None
        """Error of the cube's position at each step [T + 1, 3], metres."""
        self.velocity: np.ndarray | None = None
        """Error of the joint velocities at each step [T + 1, 7], rad/s."""
        if options.randomises:
            self._draw(options, np.random.Generator(np.random.Philox(key=seed)))
        self.alters_commands = self.delay > 0 or self.gain != 1 or self.width_step is not None

    def _draw(self, options: ManiSkillOptions, rng: np.random.Generator) -> None:
        """Always the same draws, so that turning one option on leaves the others' values."""
        offset = rng.normal(0.0, 1.0, 3) * options.position_noise
        self.gain = np.float32(rng.uniform(*options.action_gain))
        self.delay = int(rng.integers(options.action_delay_steps[0], options.action_delay_steps[1] + 1))
        friction, mass, gripper = rng.uniform(0.0, 1.0, 3)
        if options.gripper_speed is not None:
            self.width_step = _between(options.gripper_speed, gripper) / CONTROL_RATE
        if options.cube_friction is not None:
            self.friction = _between(options.cube_friction, friction)
        if options.cube_mass_scale is not None:
            self.mass_scale = _between(options.cube_mass_scale, mass)
        readings = options.max_episode_steps + 1
        jitter = rng.normal(0.0, 1.0, (readings, 3)) * options.position_jitter
        if options.position_noise or options.position_jitter:
            self.cube = (offset + jitter).astype(np.float32)
        if options.velocity_noise:
            noise = rng.normal(0.0, 1.0, (readings, ARM_JOINTS)) * options.velocity_noise
            self.velocity = noise.astype(np.float32)

    def commands(self, actions: np.ndarray, pending: Pending) -> np.ndarray:
        """Actions asked for [C, 4] to those that take effect [C, 4]; ``pending`` is brought up to date.

        Until the first delayed command arrives the arm holds and the gripper stays open.
        """
        if self.delay:
            queue = [*pending.delayed, *actions]
            actions, pending.delayed = np.stack(queue[: len(actions)]), queue[len(actions) :]
        altered = actions * np.array([self.gain, self.gain, self.gain, 1], np.float32)
        if self.width_step is not None:
            for row in altered:
                change = float(row[3]) - pending.width
                pending.width += min(max(change, -self.width_step), self.width_step)
                row[3] = pending.width
        return altered

    def pending(self) -> Pending:
        """The commands on their way when the episode starts."""
        return Pending([np.array([0, 0, 0, MAX_WIDTH], np.float32)] * self.delay)


def _between(bounds: tuple[float, float], share: float) -> float:
    return float(bounds[0] + (bounds[1] - bounds[0]) * share)
