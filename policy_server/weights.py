"""The versions a policy server holds: staged, verified, flipped between two batches, kept for rollback and pins."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from landbridge.errors import FailedPrecondition, InvalidArgument, NotFound
from landbridge.v1 import weights_pb2
from landbridge.weights import Array, Assembler, State, refuse_other_contents

M = TypeVar("M")


@dataclass(eq=False)
class Held(Generic[M]):
    """One version: its arrays, the module that computes with them, and when it came."""

    version: int
    state: State
    module: M
    training_step: int = 0
    received: float = field(default_factory=time.time)
    asked_for: float | None = None
    """``time.monotonic()`` of the last request that named this version; None when none ever did."""

    @property
    def bytes(self) -> int:
        """Size of the arrays."""
        return sum(array.nbytes for array in self.state.values())


@dataclass(frozen=True)
class Retention:
    """Which versions stay however many newer ones come."""

    keep: int = 8
    """The newest so many, at least 1; the current one stays also when it is older."""
    pin_seconds: float = 3600.0
    """A version that a request named stays this long after the last such request …"""
    max_pinned: int = 8
    """… as long as it is among the last so many of that kind: a client that names every version pins them all."""
    always: Collection[int] = ()
    """Versions that never go."""


class WeightStore(Generic[M]):
    """Holds versions and says which is current.

    A version is immutable once here, and a module belongs to one version: whoever took a :class:`Held` computes with
    that version alone, whatever becomes current meanwhile. That is what makes a flip atomic.
    """

    def __init__(
        self, build: Callable[[State], M], first: Held[M], architecture_hash: str, retention: Retention
    ) -> None:
        """``build`` makes a module of a complete state; ``first`` is what is served until a push comes."""
        self._build = build
        self._hash = architecture_hash
        self._retention = retention
        self._lock = threading.Lock()
        self._held: dict[int, Held[M]] = {first.version: first}
        self._current = first

    @property
    def current(self) -> Held[M]:
        """What requests that name no version are answered with."""
        return self._current

    def get(self, version: int) -> Held[M]:
        """The version named, which pins it for a while; NOT_FOUND lists what is held."""
        with self._lock:
            held = self._named(version)
            held.asked_for = time.monotonic()
            return held

    def versions(self) -> list[int]:
        """Versions held, oldest first."""
        with self._lock:
            return sorted(self._held)

    def list(self) -> list[tuple[Held[M], bool]]:
        """All that is held, oldest first, and whether it is pinned."""
        with self._lock:
            pinned = self._pinned()
            return [(self._held[version], version in pinned) for version in sorted(self._held)]

    def push(
        self, manifest: weights_pb2.WeightsManifest, buckets: Iterator[weights_pb2.WeightsBucket]
    ) -> tuple[Held[M], float, float]:
        """Stage, verify, hold and, if asked, activate. Returns what is held, and seconds of verifying and flipping.

        Whatever is wrong raises and leaves everything as it was. Pushes may overlap: one that is slow to arrive
        holds nobody up.
        """
        if manifest.version < 0:
            raise InvalidArgument(f"version {manifest.version}: versions count from 0", field="manifest.version")
        base = self._base(manifest)
        assembler = Assembler(manifest, self._current.state, self._hash)
        for bucket in buckets:
            assembler.add(bucket)
        begun = time.perf_counter()
        state: dict[str, Array] = {**base, **assembler.finish()}
        there = self._held.get(manifest.version)
        held = there or Held(manifest.version, state, self._build(state), manifest.training_step)
        verified = time.perf_counter()
        with self._lock:
            # Another push of the same version may have come first.
            held = self._held.setdefault(held.version, held)
            if held.state is not state:
                refuse_other_contents(manifest.version, state, held.state)
            if manifest.activate:
                self._current = held
            self._evict(held)
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
            previous, self._current = self._current.version, self._named(version)
            return previous

    def _named(self, version: int) -> Held[M]:
        held = self._held.get(version)
        if held is None:
            raise NotFound(f"version {version} is not held; held are {sorted(self._held)}", field="version")
        return held

    def _pinned(self) -> set[int]:
        rule, now = self._retention, time.monotonic()
        named = [h for h in self._held.values() if h.asked_for is not None and now - h.asked_for < rule.pin_seconds]
        named.sort(key=lambda held: held.asked_for or 0.0, reverse=True)
        return {held.version for held in named[: rule.max_pinned]} | (self._held.keys() & set(rule.always))

    def _evict(self, newcomer: Held[M]) -> None:
        newest = sorted(self._held)[-self._retention.keep :]
        stay = {*newest, *self._pinned(), self._current.version, newcomer.version}
        for version in self._held.keys() - stay:
            del self._held[version]
