"""Plain ManiSkill, in a process of its own: ``python maniskill_reference.py TASK EPISODES.npz OUT.npz``.

EPISODES.npz holds ``actions_SEED`` [T, 4] in the contract's physical units. OUT.npz gets, per seed, what ``env.reset``
and ``env.step`` lead to: ``states_SEED`` [T + 1, N], ``rewards_SEED``, ``success_SEED``, ``grasped_SEED`` [T].
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def simulator_state(env: Any) -> np.ndarray:
    """Joint positions and velocities, every entity's pose, every free body's velocities [N] float32."""
    robot = env.agent.robot._objs[0]
    parts = [robot.qpos, robot.qvel]
    for entity in env.scene.sub_scenes[0].entities:
        parts += [entity.pose.p, entity.pose.q]
        for component in entity.components:
            if type(component).__name__ == "PhysxRigidDynamicComponent":
                parts += [component.linear_velocity, component.angular_velocity]
    return np.concatenate(parts).astype(np.float32)


def normalised(action: np.ndarray) -> np.ndarray:
    """Within the contract's bounds; displacement over 0.1 m, half the width between finger targets of -1 and 4 cm."""
    action = np.clip(action, np.float32([-0.1, -0.1, -0.1, 0]), np.float32([0.1, 0.1, 0.1, 0.08]))
    low, high = np.float32(-0.01), np.float32(0.04)
    half = np.float32(0.5)
    finger = (half * action[3] - half * (high + low)) / (half * (high - low))
    return np.clip(np.append(action[:3] / np.float32(0.1), finger), -1, 1).astype(np.float32)


def main(task: str, source: str, target: str) -> None:
    from sim_server.adapters.maniskill_headless import disable_rendering

    disable_rendering()
    import gymnasium
    import mani_skill.envs  # noqa: F401
    import torch

    torch.set_num_threads(1)
    made = {}
    for name, actions in np.load(source).items():
        seed = name.removeprefix("actions_")
        env: Any = gymnasium.make(
            task, obs_mode="state", control_mode="pd_ee_delta_pos", sim_backend="physx_cpu", render_backend="none"
        ).unwrapped  # a new one for every episode: ManiSkill's own episodes depend on what ran before
        env.reset(seed=int(seed))
        states, rewards, success, grasped = [simulator_state(env)], [], [], []
        for action in actions:
            _, reward, _, _, info = env.step(normalised(action))
            states.append(simulator_state(env))
            rewards.append(float(reward))
            success.append(bool(info["success"]))
            grasped.append(bool(info.get("is_grasped", False)))
        made |= {f"states_{seed}": np.stack(states), f"rewards_{seed}": np.array(rewards)}
        env.close()
        made |= {f"success_{seed}": np.array(success), f"grasped_{seed}": np.array(grasped)}
    np.savez(target, **made)


if __name__ == "__main__":
    main(*sys.argv[1:])
