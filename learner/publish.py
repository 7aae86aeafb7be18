"""From optimizer to policy servers: push, verify, flip, announce. A version is announced when all servers hold it."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from landbridge.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    LandbridgeError,
    NotFound,
    ResourceExhausted,
    Unavailable,
)
from landbridge.policy.client import PolicyClient
from landbridge.weights import Array, changed

_RETRY_SECONDS = 0.5
_TRY_AGAIN = (Unavailable, DeadlineExceeded, ResourceExhausted)


@dataclass(frozen=True)
class Published:
    """One version."""

    version: int
    update: int
    state: dict[str, Array]


@dataclass(frozen=True)
class Swap:
    """One server's swap, as a line of ``swaps.jsonl``."""

    version: int
    update: int
    server: str
    time: float
    """Unix seconds."""
    bytes: int
    tensors: int
    full: bool
    push_seconds: float
    verify_seconds: float
    flip_seconds: float
    attempts: int


class Announcements:
    """Versions as they are published; thread-safe. Keeps the newest few for whoever asks for weights."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._changed = threading.Condition()
        self._held: OrderedDict[int, Published] = OrderedDict()
        self._closed = False

    def add(self, published: Published) -> None:
        """All policy servers hold it."""
        with self._changed:
            self._held[published.version] = published
            while len(self._held) > self._keep:
                self._held.popitem(last=False)
            self._changed.notify_all()

    def get(self, version: int | None) -> Published:
        """The newest, or the one named; NOT_FOUND lists what is kept."""
        with self._changed:
            if not self._held:
                raise NotFound("nothing is published yet; ask again in a moment", retry_after=0.5)
            if version is None:
                return next(reversed(self._held.values()))
            if version not in self._held:
                raise NotFound(f"version {version} is not kept; there are {list(self._held)}", field="version")
            return self._held[version]

    def after(self, version: int, timeout: float) -> list[Published]:
        """Those kept that are newer than ``version``, waiting up to ``timeout`` seconds for one."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or any(v > version for v in self._held), timeout)
            return [published for v, published in self._held.items() if v > version]

    @property
    def closed(self) -> bool:
        """Whether no more will come."""
        return self._closed

    def close(self) -> None:
        """No more will come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Publisher:
    """Pushes to every policy server. Not thread-safe; the trainer's."""

    def __init__(
        self,
        addresses: tuple[str, ...],
        architecture_hash: str,
        announcements: Announcements,
        swaps: Path,
        *,
        mode: str = "changed",
        timeout: float = 120.0,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """``mode`` full or changed; ``timeout`` in seconds for a version to reach all servers, restarts included.

        ``stopped`` ends the waiting early, with UNAVAILABLE.
        """
        self._clients = [PolicyClient(address) for address in addresses]
        self._instances: dict[str, str] = {}
        self._architecture_hash, self._announcements, self._swaps = architecture_hash, announcements, swaps
        self._changed_only, self._timeout, self._stopped = mode == "changed", timeout, stopped
        self._last: Published | None = None

    def check_servers(self, timeout: float) -> None:
        """Wait for the servers; FAILED_PRECONDITION where one runs another architecture."""
        deadline = time.monotonic() + timeout
        for client in self._clients:
            info = self._persist(client, deadline, client.info)
            self._instances[client.address] = info.instance_id
            if info.architecture_hash != self._architecture_hash:
                raise FailedPrecondition(
                    f"the policy server at {client.address} runs architecture {info.architecture_hash[:12]}…, the "
                    f"checkpoint is {self._architecture_hash[:12]}…; start it from the same checkpoint"
                )

    def publish(self, published: Published) -> list[Swap]:
        """Make every server serve it, then announce it."""
        deadline = time.monotonic() + self._timeout
        swaps = [self._push(client, published, deadline) for client in self._clients]
        self._last = published
        self._announcements.add(published)
        return swaps

    def heal(self) -> list[str]:
        """Give a server that was restarted the newest version; returns the addresses concerned.

        One that serves an older version without a restart was rolled back on purpose, and is left alone.
        """
        healed = []
        for client in self._clients:
            try:
                info = client.info()
            except LandbridgeError:
                continue  # it is gone: its return shows in the instance id
            if self._last is not None and info.instance_id != self._instances.get(client.address):
                if info.current_version != self._last.version:
                    self._push(client, self._last, time.monotonic() + self._timeout)
                    healed.append(client.address)
                self._instances[client.address] = info.instance_id
        return healed

    def _push(self, client: PolicyClient, published: Published, deadline: float) -> Swap:
        base = self._last if self._changed_only and self._last and self._last is not published else None
        attempts = 0

        def attempt() -> Swap:
            nonlocal attempts, base
            attempts += 1
            try:
                return self._try(client, published, base, deadline, attempts)
            except FailedPrecondition:
                if base is None:
                    raise
                base = None  # restarted since: it lacks the version the changes refer to
                return self._try(client, published, None, deadline, attempts)

        swap = self._persist(client, deadline, attempt)
        with self._swaps.open("a") as file:
            file.write(json.dumps(asdict(swap)) + "\n")
        return swap

    def _try(
        self, client: PolicyClient, published: Published, base: Published | None, deadline: float, attempts: int
    ) -> Swap:
        state = published.state if base is None else changed(published.state, base.state)
        began = time.monotonic()
        reply = client.push_weights(
            state,
            version=published.version,
            architecture_hash=self._architecture_hash,
            base_version=None if base is None else base.version,
            training_step=published.update,
            timeout=max(1.0, deadline - began),
        )
        return Swap(
            version=published.version,
            update=published.update,
            server=client.address,
            time=time.time(),
            bytes=sum(array.nbytes for array in state.values()),
            tensors=len(state),
            full=base is None,
            push_seconds=time.monotonic() - began,
            verify_seconds=reply.verify_seconds,
            flip_seconds=reply.flip_seconds,
            attempts=attempts,
        )

    def _persist(self, client: PolicyClient, deadline: float, action: Callable[[], Any]) -> Any:
        """Repeat ``action`` while the server is gone or full, until ``deadline``."""
        while True:
            try:
                return action()
            except _TRY_AGAIN as error:
                if self._stopped() or time.monotonic() + _RETRY_SECONDS > deadline:
                    raise Unavailable(f"the policy server at {client.address} cannot be reached: {error}") from error
                time.sleep(_RETRY_SECONDS)

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()
