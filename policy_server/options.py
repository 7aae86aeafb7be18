"""Settings of the policy server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from landbridge.config import option


@dataclass(frozen=True)
class PolicyServeConfig:
    """Options of ``landbridge policy serve``."""

    checkpoint: Path = option(help="folder with manifest.json and weights.safetensors")
    host: str = option("127.0.0.1", "address to listen on; loopback unless told otherwise")
    port: int = option(50051, "port, 0 for any free one", minimum=0, maximum=65535)
    learner: str = option("", "HOST:PORT of a learner to ask for the newest weights at the start")
    learner_timeout: float = option(20.0, "seconds the learner has to hand them over", minimum=0.1)
    keep: int = option(8, "newest versions kept for rollback; the current and pinned ones on top", minimum=1)
    pin: tuple[int, ...] = option((), "versions that are never dropped", minimum=0)
    pin_seconds: float = option(3600.0, "a version a request named is kept this long after its last use", minimum=0.0)
    max_pinned: int = option(8, "… for at most so many versions, the ones named last", minimum=0)
    max_rows: int = option(256, "rows in a request and in a batch", minimum=1)
    max_queued: int = option(128, "requests waiting or in work before more are refused", minimum=1)
    max_streams: int = option(64, "streams open before more are refused", minimum=1)
    wait_seconds: float = option(0.0, "time a batch waits to fill; 0 answers at once", minimum=0.0, maximum=1.0)
    threads: int = option(1, "torch's threads", minimum=1)
