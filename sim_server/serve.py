"""Serve a simulator: workers, EnvService, until told to stop. Runs in the simulator's own Python environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from landbridge import rpc, telemetry
from landbridge.config import option
from landbridge.env.service import EnvServicer
from landbridge.process import announce_ready, watch_parent
from sim_server.adapters import preload
from sim_server.workers import WorkerPool


@dataclass(frozen=True)
class SimServeConfig:
    """Options of ``landbridge sim serve``."""

    num_envs: int = option(8, "environments, each in a process of its own", minimum=1)
    host: str = option("127.0.0.1", "address to listen on; loopback unless told otherwise")
    port: int = option(50052, "port, 0 for any free one", minimum=0, maximum=65535)
    options: dict[str, Any] = option({}, "options of the adapter, as a YAML mapping")
    step_timeout: float = option(30.0, "seconds a chunk may take before its worker counts as hung", minimum=0.1)


def serve(spec: str, config: SimServeConfig) -> int:
    """Run ``spec`` (SIMULATOR:TASK) until SIGINT or SIGTERM."""
    watch_parent()
    stopped = rpc.stop_event()
    pool = WorkerPool(spec, config.num_envs, config.options, preload=preload(spec), step_timeout=config.step_timeout)
    try:
        servicer = EnvServicer(pool)
        server = rpc.Server([servicer.service()], host=config.host, port=config.port)
        server.start()
        announce_ready(server.address, spec=spec, num_envs=config.num_envs)
        stopped.wait()
        server.stop(1.0)
    finally:
        pool.close()
        telemetry.shutdown()
    return 0
