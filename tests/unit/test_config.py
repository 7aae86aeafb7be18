"""One schema for file and command line; what is wrong is named by its path."""

from __future__ import annotations

import argparse
import dataclasses
import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from landbridge.config import ConfigError, add_arguments, from_args, from_mapping, load, option, to_mapping


class Schedule(enum.Enum):
    """How the learning rate goes."""

    CONSTANT = "constant"
    COSINE = "cosine"


@dataclass
class Ppo:
    """Algorithm."""

    lr: float = option(1e-4, "learning rate of the actor", minimum=0.0)
    clip: float = option(0.2, minimum=0.0, maximum=1.0)
    schedule: Schedule = Schedule.CONSTANT


@dataclass
class Train:
    """A run."""

    name: str = option("demo", "name of the run")
    num_envs: int = option(8, "environments in parallel", minimum=1)
    resume: bool = False
    device: Literal["cpu", "cuda"] = "cpu"
    checkpoint: Path | None = None
    """Start from these weights."""
    hidden: tuple[int, ...] = option((256, 256), "widths", minimum=1)
    span: tuple[float, float] = (0.0, 1.0)
    tasks: list[str] = option([], "tasks, in order")
    extra: dict[str, float] = option({}, "anything")
    port: int = option(0, choices=[0, 50051])
    ppo: Ppo = option(Ppo())


@dataclass
class Needs:
    """Something without a default."""

    address: str = option(help="HOST:PORT")


def test_defaults_file_and_command_line_in_rising_precedence(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("num_envs: 4\nppo: {lr: 1e-3, clip: 0.1}\n")
    parser = argparse.ArgumentParser()
    add_arguments(parser, Train)
    config = from_args(Train, parser.parse_args(["--config", str(file), "--ppo.lr", "2e-3", "--resume"]))
    assert config == Train(num_envs=4, resume=True, ppo=Ppo(lr=2e-3, clip=0.1))


EVERY_FLAG: dict[str, Any] = {
    "--name 8": {"name": "8"},
    "--num-envs 16": {"num_envs": 16},
    "--no-resume": {"resume": False},
    "--device cuda": {"device": "cuda"},
    "--checkpoint runs/a": {"checkpoint": Path("runs/a")},
    "--checkpoint none": {"checkpoint": None},
    "--hidden 32,64,32": {"hidden": (32, 64, 32)},
    "--hidden [32]": {"hidden": (32,)},
    "--span 1,2.5": {"span": (1.0, 2.5)},
    "--tasks pick,place": {"tasks": ["pick", "place"]},
    "--tasks []": {"tasks": []},
    "--extra {a:\\ 1}": {"extra": {"a": 1.0}},
    "--port 50051": {"port": 50051},
    "--ppo.lr 3": {"ppo": Ppo(lr=3.0)},
    "--ppo.schedule cosine": {"ppo": Ppo(schedule=Schedule.COSINE)},
}


@pytest.mark.parametrize(("line", "expected"), EVERY_FLAG.items(), ids=EVERY_FLAG.keys())
def test_every_type_has_a_flag(line: str, expected: dict[str, Any]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, Train)
    config = from_args(Train, parser.parse_args([word.replace("\\ ", " ") for word in line.split(" ", 1)]))
    assert config == dataclasses.replace(Train(), **expected)


def test_a_prefix_keeps_two_schemas_apart() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, Train)
    add_arguments(parser, Ppo, prefix="critic.")
    args = parser.parse_args(["--ppo.lr", "1", "--critic.lr", "2"])
    assert (from_args(Train, args).ppo.lr, from_args(Ppo, args, prefix="critic.").lr) == (1.0, 2.0)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"num_env": 8}, r"^num_env: no such setting; did you mean 'num_envs'\? There are: checkpoint, "),
    "unknown nested key": ({"ppo": {"lrr": 1}}, r"^ppo\.lrr: no such setting; did you mean 'ppo\.lr'\?"),
    "text for a number": ({"num_envs": "many"}, r"^num_envs: expected a whole number, got 'many' \(text\)"),
    "number for text": ({"name": 3}, r"^name: expected text, got 3 \(int\)"),
    "fraction for a whole number": ({"num_envs": 1.5}, r"^num_envs: expected a whole number, got 1\.5 \(float\)"),
    "truth for a number": ({"num_envs": True}, "^num_envs: expected a whole number, got True"),
    "truth for a fraction": ({"ppo": {"lr": True}}, r"^ppo\.lr: expected a number, got True"),
    "number for truth": ({"resume": 1}, r"^resume: expected true or false, got 1 \(int\)"),
    "null where there is a value": ({"num_envs": None}, r"^num_envs: expected a whole number, got nothing \(null\)"),
    "below the minimum": ({"num_envs": 0}, "^num_envs: expected at least 1, got 0"),
    "not a number at all": ({"ppo": {"lr": float("nan")}}, r"^ppo\.lr: expected at least 0\.0, got nan"),
    "outside a range": ({"ppo": {"clip": 2}}, r"^ppo\.clip: expected a value from 0\.0 to 1\.0, got 2\.0"),
    "an item below the minimum": ({"hidden": [8, 0]}, r"^hidden\[1\]: expected at least 1, got 0"),
    "not a choice": ({"port": 3}, "^port: expected one of 0, 50051; got 3"),
    "not a literal": ({"device": "tpu"}, "^device: expected one of cpu, cuda; got 'tpu'"),
    "not in the enum": ({"ppo": {"schedule": "linear"}}, r"^ppo\.schedule: expected one of constant, cosine; got"),
    "wrong number of values": ({"span": [1]}, "^span: expected 2 values, got 1"),
    "text for a list": ({"tasks": "pick"}, "^tasks: expected a list"),
    "wrong item": ({"tasks": ["a", 2]}, r"^tasks\[1\]: expected text, got 2"),
    "value for a group": ({"ppo": 3}, "^ppo: expected a mapping of lr, clip, schedule, got 3"),
    "wrong value in a mapping": ({"extra": {"a": "x"}}, r"^extra\.a: expected a number, got 'x'"),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_named_by_its_path(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_mapping(Train, data)


def test_the_command_line_is_checked_by_the_same_rules() -> None:
    with pytest.raises(ConfigError, match=r"num_envs: expected a whole number, got '8.5'"):
        load(Train, overrides=["num_envs=8.5"])
    with pytest.raises(ConfigError, match=r"ppo.clip: expected a value from"):
        load(Train, overrides=["ppo.clip=7"])
    with pytest.raises(ConfigError, match="resume: expected true or false, got 'yes'"):
        load(Train, overrides=["resume=yes"])
    with pytest.raises(ConfigError, match="override 'resume': expected KEY=VALUE"):
        load(Train, overrides=["resume"])
    with pytest.raises(ConfigError, match=r"name.first: name is 'demo' .* has no settings in it"):
        load(Train, overrides=["name=demo", "name.first=x"])


def test_a_missing_required_setting_is_named() -> None:
    with pytest.raises(ConfigError, match=r"address: required \(text\) and not given"):
        load(Needs)


def test_errors_of_a_file_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    with pytest.raises(ConfigError, match=r"cannot read .*run\.yaml: No such file"):
        load(Train, file)
    file.write_text("num_envs: [")
    with pytest.raises(ConfigError, match="is not YAML"):
        load(Train, file)
    file.write_text("- 1")
    with pytest.raises(ConfigError, match="expected a mapping of settings at the top"):
        load(Train, file)
    file.write_text("num_envs: 0")
    with pytest.raises(ConfigError, match=r"run\.yaml: num_envs: expected at least 1"):
        load(Train, file)
    file.write_text("")
    assert load(Train, file) == Train()


def test_a_check_between_settings_is_reported_with_the_path() -> None:
    with pytest.raises(ConfigError, match="inner: low is above high"):
        from_mapping(Outer, {"inner": {"low": 2, "high": 1}})


@dataclass
class Inner:
    """Two settings that depend on each other."""

    low: int = 0
    high: int = 1

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


@dataclass
class Outer:
    """Holds it."""

    inner: Inner = option(Inner())


def test_mutable_defaults_are_not_shared() -> None:
    first, second = Train(), Train()
    first.tasks.append("pick")
    first.ppo.lr = 9.0
    assert (second.tasks, second.ppo.lr) == ([], 1e-4)


def test_help_tells_meaning_range_and_default() -> None:
    parser = argparse.ArgumentParser(prog="x")
    add_arguments(parser, Train)
    text = " ".join(parser.format_help().split())
    assert "--ppo.lr X learning rate of the actor (at least 0.0; default: 0.0001)" in text
    assert "--device {cpu,cuda}" in text and "--ppo.schedule {constant,cosine}" in text
    assert "--resume, --no-resume" in text
    assert "--checkpoint PATH Start from these weights. (default: None)" in text


configs = st.builds(
    Train,
    name=st.text(),
    num_envs=st.integers(1, 1000),
    resume=st.booleans(),
    device=st.sampled_from(["cpu", "cuda"]),
    checkpoint=st.none() | st.just(Path("a/b")),
    hidden=st.lists(st.integers(1, 9)).map(tuple),
    tasks=st.lists(st.text()),
    extra=st.dictionaries(st.text(), st.floats(allow_nan=False)),
    ppo=st.builds(Ppo, lr=st.floats(0, 1), schedule=st.sampled_from(Schedule)),
)


@given(configs)
def test_what_is_saved_reads_back_equal(config: Train) -> None:
    import yaml

    assert from_mapping(Train, yaml.safe_load(yaml.safe_dump(to_mapping(config)))) == config
