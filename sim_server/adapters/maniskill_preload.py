"""Imported once by the process ManiSkill's workers are forked from: a start costs one import, not one a worker."""

from sim_server.adapters.maniskill_headless import disable_rendering

disable_rendering()

import gymnasium  # noqa: E402, F401
import mani_skill.envs  # noqa: E402, F401
import torch  # noqa: E402

torch.set_num_threads(1)
