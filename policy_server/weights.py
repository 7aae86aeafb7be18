"""The versions a policy server holds: staged, verified, flipped between two batches, kept for rollback and pins."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from landbridge.errors import FailedPrecondition, InvalidArgument, NotFound
from landbridge.v1 import weights_pb2
from landbridge.weights import Array, Assembler, State, refuse_other_contents

M = TypeVar("M")


@dataclass
class Held(Generic[M]):
    """One version: its arrays, the module that computes with them, and when it came."""

    version: int
    state: State
    module: M
    training_step: int = 0
    received: float = field(default_factory=time.time)
    pinned: bool = False
    last_used: float = field(default_factory=time.monotonic)

    @property
    def bytes(self) -> int:
        """Size of the arrays."""
        return sum(array.nbytes for array in self.state.values())


class WeightStore(Generic[M]):
    """Keeps the newest ``keep`` versions, the current one, and whatever was used by number in the last ``pin_seconds``.

    A version is immutable once here, and a module belongs to one version: whoever took a :class:`Held` computes with
    that version alone, whatever becomes current meanwhile. That is what makes a flip atomic.
    """

    def __init__(
        self, build: Callable[[State], M], first: Held[M], architecture_hash: str, keep: int, pin_seconds: float
    ) -> None:
        """``build`` makes a module of a complete state; ``first`` is what is served until a push comes."""
        self._build = build
        self._hash = architecture_hash
        self._keep = keep
        self._pin_seconds = pin_seconds
        self._lock = threading.Lock()
        self._held: dict[int, Held[M]] = {first.version: first}
        self._current = first

    @property
    def current(self) -> Held[M]:
        """What unpinned requests are answered with."""
        return self._current

    def get(self, version: int | None) -> Held[M]:
        """The version named, or the current one; NOT_FOUND lists what is held."""
        if version is None:
            return self._current
        held = self._held.get(version)
        if held is None:
            raise NotFound(f"version {version} is not held; held are {self.versions()}", field="version")
        held.last_used = time.monotonic()
        held.pinned = True
        return held

    def versions(self) -> list[int]:
        """Versions held, oldest first."""
        return sorted(self._held)

    def list(self) -> list[Held[M]]:
        """All that is held, oldest first."""
        with self._lock:
            return [self._held[version] for version in sorted(self._held)]

    def push(
        self, manifest: weights_pb2.WeightsManifest, buckets: Iterator[weights_pb2.WeightsBucket]
    ) -> tuple[Held[M], float, float]:
        """Stage, verify, hold and, if asked, activate. Returns what is held, and seconds of verifying and flipping.

        Whatever is wrong raises and leaves everything as it was.
        """
        if manifest.version < 0:
            raise InvalidArgument(f"version {manifest.version}: versions count from 0", field="manifest.version")
        template = self._current.state
        base = self._base(manifest)
        assembler = Assembler(manifest, template, self._hash)
        for bucket in buckets:
            assembler.add(bucket)
        begun = time.perf_counter()
        state: dict[str, Array] = {**base, **assembler.finish()}
        held = self._held.get(manifest.version)
        if held is not None:
            refuse_other_contents(manifest.version, state, held.state)
        else:
            held = Held(manifest.version, state, self._build(state), manifest.training_step)
        verified = time.perf_counter()
        with self._lock:
            self._held[held.version] = held
            if manifest.activate:
                self._current = held
            self._evict()
        return held, verified - begun, time.perf_counter() - verified

    def _base(self, manifest: weights_pb2.WeightsManifest) -> State:
        if not manifest.HasField("base_version"):
            return {}
        held = self._held.get(manifest.base_version)
        if held is None:
            raise FailedPrecondition(
                f"a push of changes to version {manifest.base_version}, which is not held (held: {self.versions()}); "
                "push in full",
                field="manifest.base_version",
            )
        return held.state

    def activate(self, version: int) -> int:
        """Make a held version current; returns the one before."""
        with self._lock:
            if version not in self._held:
                raise NotFound(f"version {version} is not held; held are {sorted(self._held)}", field="version")
            previous, self._current = self._current.version, self._held[version]
            return previous

    def _evict(self) -> None:
        now = time.monotonic()
        for held in self._held.values():
            held.pinned = held.pinned and now - held.last_used < self._pin_seconds
        free = [v for v, held in sorted(self._held.items()) if not held.pinned and held is not self._current]
        # The current version is one of the `keep`; pins come on top.
        for version in free[: max(0, len(free) - (self._keep - 1))]:
            del self._held[version]
