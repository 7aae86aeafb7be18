"""Child processes: announced, reported when they die, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from landbridge.errors import DeadlineExceeded, NotFound, Unavailable
from landbridge.process import Child, ProcessGroup, read_ready

READY = "from landbridge.process import announce_ready; import time; announce_ready('127.0.0.1:7', extra=3); "
DEADLINE = 20.0


@pytest.fixture
def group() -> Iterator[ProcessGroup]:
    with ProcessGroup() as made:
        yield made


def python(group: ProcessGroup, code: str, name: str = "child") -> Child:
    return group.start(name, [sys.executable, "-c", textwrap.dedent(code)])


def eventually_gone(pid: int) -> bool:
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_the_ready_line_carries_the_address_of_port_0(group: ProcessGroup) -> None:
    child = python(group, READY + "time.sleep(60)")
    assert read_ready(child, DEADLINE) == {"ready": True, "address": "127.0.0.1:7", "extra": 3}
    assert child.address == "127.0.0.1:7"


def test_a_line_that_only_looks_like_it_is_not_taken_for_ready(group: ProcessGroup) -> None:
    lines = """print('{"ready": false, "address": "x"}'); print('{"ready" broken'); print('{"ready": true}')"""
    with pytest.raises(Unavailable):
        read_ready(python(group, lines), DEADLINE)


def test_a_child_that_dies_early_is_reported_with_its_last_words(group: ProcessGroup) -> None:
    child = python(group, "import sys; print('loading'); sys.exit('no weights in /nowhere')", "policy")
    with pytest.raises(Unavailable, match=r"policy ended with status 1 before it was ready\n.*loading\n.*no weights"):
        read_ready(child, DEADLINE)
    with pytest.raises(Unavailable, match="policy ended with status 1"):
        group.check()


def test_a_child_that_never_gets_ready_costs_no_more_than_the_deadline(group: ProcessGroup) -> None:
    child = python(group, "import time; print('still loading'); time.sleep(60)")
    child_said = time.monotonic() + DEADLINE
    while "still loading" not in child.tail() and time.monotonic() < child_said:
        time.sleep(0.01)
    with pytest.raises(DeadlineExceeded, match=r"not ready within 0\.05 s\n.*still loading"):
        read_ready(child, 0.05)


def test_a_missing_program_is_named(group: ProcessGroup) -> None:
    with pytest.raises(NotFound, match="no-such-program"):
        group.start("x", ["no-such-program"])


def test_sigterm_first_so_that_a_child_can_tidy_up(group: ProcessGroup) -> None:
    child = python(group, "import signal, sys; signal.signal(15, lambda *a: sys.exit(42));" + READY + "time.sleep(60)")
    read_ready(child, DEADLINE)
    group.stop_all()
    assert child.poll() == 42


def test_a_child_deaf_to_sigterm_is_killed_with_all_it_started(group: ProcessGroup) -> None:
    child = python(
        group,
        """
        import signal, subprocess, sys, time
        from landbridge.process import announce_ready
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        announce_ready("-", grandchild=other.pid)
        time.sleep(60)
        """,
    )
    grandchild = read_ready(child, DEADLINE)["grandchild"]
    group.stop_all(grace=0.2)
    assert child.poll() == -signal.SIGKILL
    assert eventually_gone(grandchild)


def test_what_a_crashed_child_started_does_not_stay(group: ProcessGroup) -> None:
    child = python(
        group,
        """
        import os, subprocess, sys
        from landbridge.process import announce_ready
        other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        announce_ready("-", grandchild=other.pid)
        os._exit(3)
        """,
    )
    grandchild = read_ready(child, DEADLINE)["grandchild"]
    assert child.wait(DEADLINE) == 3
    assert eventually_gone(grandchild)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_child_outlives_its_parent(how: signal.Signals) -> None:
    parent = """
        import sys, threading, time
        from landbridge.process import ProcessGroup, read_ready
        group = ProcessGroup()
        def start():  # from a thread that ends: its end is not the parent's
            read_ready(group.start("deaf", [sys.executable, "-c", sys.argv[1]]), 20)
        thread = threading.Thread(target=start); thread.start(); thread.join()
        time.sleep(0.2)
        print(group.children[0].pid, group.children[0].poll(), flush=True)
        time.sleep(60)
    """
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + READY + "time.sleep(60)"
    command = [sys.executable, "-c", textwrap.dedent(parent), deaf]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, status = process.stdout.readline().split()
        assert status == "None", "the child must survive the thread that started it"
        process.send_signal(how)
    assert eventually_gone(int(pid))


def test_watch_parent_ends_a_process_started_by_other_means() -> None:
    watching = "from landbridge.process import watch_parent; import time; watch_parent(); print('up', flush=True);"
    parent = f"""
        import os, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", {watching + "time.sleep(60)"!r}], stdout=subprocess.PIPE)
        child.stdout.readline()
        print(child.pid, flush=True)
        os._exit(0)
    """
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(parent)], stdout=subprocess.PIPE, timeout=DEADLINE)
    assert eventually_gone(int(out.stdout))


def test_output_goes_to_a_file_and_prefixed_to_stdout(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with ProcessGroup(log_folder=tmp_path / "logs", echo=True) as group:
        child = python(group, "print('one'); print('two')", "sim")
        child.wait(DEADLINE)
        child.tail()
    assert (tmp_path / "logs" / "sim.log").read_text() == "one\ntwo\n"
    assert capfd.readouterr().out == "sim | one\nsim | two\n"


def test_children_do_not_read_the_terminal(group: ProcessGroup) -> None:
    child = python(group, "import sys; print(repr(sys.stdin.read()))")
    child.wait(DEADLINE)
    assert child.tail().strip() == "''"


def test_children_run_in_sessions_of_their_own(group: ProcessGroup) -> None:
    child = python(group, READY + "time.sleep(60)")
    read_ready(child, DEADLINE)
    assert os.getsid(child.pid) == child.pid != os.getsid(0)
