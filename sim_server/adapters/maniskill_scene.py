"""A PhysX scene without a past.

PhysX gives contacts their places in the solver from lists that remember earlier contacts, so ManiSkill's episodes are
bit-identical only from one fresh process to the next: after other episodes about one in eight parts from its twin at
the first touch of the cube. Moving every body to a new PhysX scene costs 0.4 ms and leaves nothing to remember.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class PhysicsScene:
    """The physics of one ManiSkill environment (CPU backend, one sub-scene)."""

    step: Callable[[], None]
    """One physics step."""
    contacts: Callable[[], list[Any]]
    """Contacts of the last physics step."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self.timestep = float(env.scene.px.timestep)
        self._entities = list(env.scene.sub_scenes[0].entities)
        self.renew()

    def renew(self) -> None:
        """Move all bodies, in ManiSkill's order, to a new scene of the same configuration."""
        import sapien

        scene = self._env.scene
        old, physics = scene.sub_scenes[0], sapien.physx.PhysxCpuSystem()
        physics.timestep = self.timestep
        new = sapien.Scene([physics])
        for entity in self._entities:
            old.remove_entity(entity)
        for entity in self._entities:
            new.add_entity(entity)
        scene.sub_scenes[0], scene.px = new, physics
        self.step, self.contacts = physics.step, physics.get_contacts
