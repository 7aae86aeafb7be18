"""Settings of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from landbridge.config import option

TRAINING = Path(__file__).with_name("training.yaml")
SIMULATOR = Path(__file__).with_name("simulator.yaml")


@dataclass(frozen=True)
class DemoConfig:
    """Options of ``landbridge demo``. Defaults are what ``make demo`` runs."""

    task: str = option("PickCube-v1", "the ManiSkill task, and the cell's")
    run_dir: Path = option(Path("runs/demo"), "where everything goes; an earlier demo there is moved aside")
    demonstrations: int = option(24, "episodes of the scripted expert to imitate: few, for a weak start", minimum=1)
    imitation_steps: int = option(3000, "gradient steps of imitation", minimum=1)
    action_limit: float = option(0.1, "largest displacement a step may command, metres", minimum=0.005, maximum=0.1)
    noise_level: float = option(0.5, "a of Flow-SDE: exploration", minimum=0.01)
    minutes: float = option(12.0, "of reinforcement learning", minimum=0.0)
    training: Path = option(TRAINING, "YAML file with settings of `landbridge learn rl`")
    simulator: Path = option(SIMULATOR, "YAML file with options of the simulator that demonstrations and RL run in")
    envs: int = option(12, "simulators that demonstrations and RL run in, a process each", minimum=2)
    evaluation_episodes: int = option(100, "unseen seeds a version is evaluated on in simulation", minimum=1)
    trials: int = option(25, "trials a version in the cell", minimum=1)
    trial_steps: int = option(50, "time limit of a trial in the cell, in control steps: the task's own", minimum=1)
    cell_speed: float = option(1.0, "of the cell's clock; 1 is real time", minimum=0.1)
    seed: int = option(0, "of everything", minimum=0)
