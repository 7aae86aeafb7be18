"""ManiSkill without a Vulkan driver: replace SAPIEN's render classes by ones that do nothing.

State observations need physics only, yet building a scene creates render materials and bodies, which fail on a
machine without a graphics driver. Call :func:`disable_rendering` before ``mani_skill`` is imported; it holds for the
whole process, which is why a worker that renders is another process.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any


class _Nothing:
    """Accepts everything, does nothing, and hands out more of itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()

    def __call__(self, *args: Any, **kwargs: Any) -> _Nothing:
        return _Nothing()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __getitem__(self, index: Any) -> _Nothing:
        return _Nothing()

    def __setitem__(self, index: Any, value: Any) -> None: ...


def disable_rendering() -> None:
    """Make scene building independent of any graphics driver in this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "failed to find libvulkan": that is the point
        import sapien.render
        import sapien.wrapper.actor_builder
        import sapien.wrapper.articulation_builder
        import sapien.wrapper.urdf_loader

    real = {
        name: value
        for name, value in vars(sapien.render).items()
        if name.startswith("Render") and isinstance(value, type)
    }
    stand_ins = {name: type(name, (_Nothing,), {}) for name in real}
    for module in [m for name, m in sys.modules.items() if name.split(".")[0] == "sapien"]:
        for name, value in real.items():
            if getattr(module, name, None) is value:
                setattr(module, name, stand_ins[name])
    sapien.wrapper.actor_builder.ActorBuilder.build_render_component = lambda self: None
