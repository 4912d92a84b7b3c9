"""Exit statuses (0 done, 1 the work failed, 2 wrong use) and errors of one line."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from carrycast import __version__
from carrycast.native import has_native_core
from tests.cli.console import EXAMPLES, QUICK, call, environment, spawn

COMMANDS = [
    "run", "emulate", "check", "contacts", "compare", "sweep", "reproduce", "report", "verify", "tour",
    "metrics", "sql",
    "node", "pub", "sub", "position", "status", "protocols", "mobility", "experiments", "new", "completion",
]  # fmt: skip


def test_a_command_that_did_its_work_exits_with_0() -> None:
    done = call("check", QUICK)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"{QUICK}: fine")


def test_work_that_fails_exits_with_1(tmp_path: Path) -> None:
    told = call("status", "--node", tmp_path / "nobody.sock").refusal(1)
    assert f"no node answers at {tmp_path / 'nobody.sock'}" in told
    assert "carrycast node" in told


def test_the_exit_status_is_that_of_the_process(tmp_path: Path) -> None:
    assert spawn("check", QUICK).status == 0
    assert "no node answers" in spawn("status", "--node", tmp_path / "nobody.sock").refusal(1)
    assert "there is no such file" in spawn("check", tmp_path / "none.toml").refusal(2)


def test_the_version_is_told() -> None:
    core = "native" if has_native_core() else "pure Python"
    assert call("--version") == (0, f"carrycast {__version__} ({core})\n", "")


def test_help_names_every_command() -> None:
    done = call("--help")
    assert done.status == 0
    for command in COMMANDS:
        assert re.search(rf"^    {command}\b", done.out, re.MULTILINE), command


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    done = call(command, "--help")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"usage: carrycast {command}")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["fly"], "invalid choice: 'fly'"),
        (["compar"], "did you mean 'compare'?"),
        (["new", "protcol", "x"], "did you mean 'protocol'?"),
        (["--verbose", "--quiet", "tour"], "not allowed with argument"),
        (["run"], "the following arguments are required: SCENARIO"),
        (["check"], "the following arguments are required: SCENARIO"),
        (["contacts"], "the following arguments are required: TRACE|SCENARIO|FLEET, --out"),
        (["sweep"], "the following arguments are required: EXPERIMENT"),
        (["report"], "the following arguments are required: DIR"),
        (["node"], "the following arguments are required: CONFIG"),
        (["pub", "speed=31"], "the following arguments are required: --node"),
        (["sub"], "the following arguments are required: --node"),
        (["status"], "the following arguments are required: --node"),
        (["new"], "the following arguments are required: KIND"),
        (["new", "protocol"], "the following arguments are required: NAME"),
        (["run", str(QUICK), "--sed", "7"], "carrycast run: unrecognized arguments: --sed 7; did you mean '--seed'?"),
        (["run", str(QUICK), "--protcol=epidemic"], "did you mean '--protocol'?"),
        (["run", str(QUICK), "another.toml"], "unrecognized arguments: another.toml"),
        (["run", str(QUICK), "--seed", "seven"], "argument --seed: invalid int value: 'seven'"),
        (["run", str(QUICK), "--seed"], "argument --seed: expected one argument"),
        (["run", str(QUICK), "--level", "some"], "argument --level: invalid choice: 'some'"),
        (["contacts", str(QUICK), "--range", "far", "--out", "x"], "argument --range: invalid float value: 'far'"),
        (["pub", "--node", "x", "--payload", "a", "--payload-file", "b"], "not allowed with argument --payload"),
    ],
)
def test_wrong_arguments_are_told_in_one_line(arguments: list[str], told: str) -> None:
    line = call(*arguments).refusal()
    assert told in line
    assert "--help" in line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--protocol", "floding"], "no protocol 'floding': did you mean 'flooding'?"),
        (["--protocol", "gossip:q=1"], "unknown key 'q'; allowed: jitter_s, max_hops, p, seen_s"),
        (["--protocol", "gossip:p=2"], "protocol.p: Expected `float` <= 1.0 (it is 2)"),
        (["--protocol", "gossip:p"], "'p' is not of the form key=value"),
        (["--protocol", "adaptive/nimble"], "nimble"),
        (["--set", "radio.range_m=-100"], "radio.range_m: Expected `float` > 0.0 (it is -100)"),
        (["--set", "radio.range=100"], "unknown key 'range'; did you mean 'range_m'?"),
        (["--set", "weather=1"], "a scenario has no 'weather'; it has advertise, applications, area_m, "),
        (["--set", "radio.range_m"], "'radio.range_m' is not of the form key=value"),
        (["--set", "nodes=many"], "nodes: Expected `int`, got `str`"),
        (["--set", "publish.3.count=1"], "'3' is not an entry of publish"),
        (["--set", "mobility.model=brownian"], "no movement model 'brownian': there are "),
        (["--set", "discovery.mode=psychic"], "'psychic' is none of 'oracle', 'beacon', 'none'"),
    ],
)
@pytest.mark.parametrize("command", ["run", "check"])
def test_a_wrong_protocol_or_setting_is_told_with_what_is_allowed(
    command: str, arguments: list[str], told: str
) -> None:
    line = call(command, QUICK, *arguments).refusal()
    assert told in line
    assert arguments[0] in line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["report", "{}/none"], "there is no such directory"),
        (["verify", "{}/none"], "there is no such directory"),
        (["verify", "{}"], "give a directory that sweep or reproduce wrote"),
        (["verify", "{}", "--runs", "0"], "--runs: at least 1"),
        (["report", "{}"], "give a directory that sweep or reproduce wrote"),
        (["sweep", "nothing"], "there is no experiment 'nothing': there are "),
        (["sweep", "{}/none.toml"], "there is no such file"),
        (["reproduce", "baselines/nothing"], "there is no figure 'nothing'; there are "),
        (["reproduce", "baselines", "baselines"], "named twice"),
        (["compare", str(QUICK), "--protocols", "flooding", "--runs", "0"], "at least one run is needed"),
        (["compare", str(QUICK), "--protocols", "flooding", "--runs", "1000000000000"], "at most 100000 of each point"),
        (["compare", str(QUICK), "--protocols", "flooding,flooding"], "'flooding' is there twice"),
        (["compare", str(QUICK), "--protocols", "floding"], "did you mean 'flooding'?"),
        (["compare", str(QUICK), "--protocols", "flooding", "--master", "mine"], "'mine' is no Spark master"),
        (["protocols", "floding"], "did you mean 'flooding'?"),
        (["mobility", "random_waypint"], "did you mean 'random_waypoint'?"),
    ],
)
def test_what_does_not_exist_is_told_before_anything_starts(tmp_path: Path, arguments: list[str], told: str) -> None:
    written = [argument.format(tmp_path) for argument in arguments]
    if arguments[0] in ("compare", "sweep", "reproduce"):
        written += ["--out", str(tmp_path / "out")]
    assert told in call(*written).refusal()
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_nearly_that_name_is_told(tmp_path: Path) -> None:
    shutil.copy(QUICK, tmp_path / "quick.toml")
    line = call("run", tmp_path / "quik.toml").refusal()
    assert line.endswith(f"there is no such file; did you mean {tmp_path / 'quick.toml'}?")
    assert call("run", tmp_path / "none" / "quik.toml").refusal().endswith("there is no such file")


def test_a_file_for_another_command_is_told_with_the_command(tmp_path: Path) -> None:
    node = EXAMPLES / "live" / "car-1.toml"
    assert "the configuration of a live node; `carrycast node` runs it" in call("run", node).refusal()
    assert "is a scenario; `carrycast run` simulates it" in call("node", QUICK).refusal()
    assert call("new", "experiment", "night_bus", "--out", tmp_path).status == 0
    experiment = tmp_path / "night_bus" / "experiment.toml"
    assert "an experiment; `carrycast reproduce` runs it" in call("show", experiment).refusal()


def test_all_experiments_at_once_say_what_they_take(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def ended(*arguments: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("carrycast.analysis.spark.reproduction.reproduce", ended)
    assert "many hours; --quick takes minutes" in call("reproduce", "--out", tmp_path).err
    for said in (["--quick"], ["baselines"], ["--json"]):
        assert "hours" not in call("reproduce", *said, "--out", tmp_path).err


def test_without_a_command_the_help_is_printed() -> None:
    assert call() == call("--help")


def test_a_run_can_be_watched_in_the_log() -> None:
    loud = spawn("--verbose", "run", QUICK)
    assert "carrycast.sim.engine: quick/flooding/1: 10 nodes for 60 s" in loud.err
    assert spawn("--quiet", "run", QUICK) == loud._replace(err="")


LIGHT = """
import sys
from carrycast.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--help"], ["rich", "msgspec", "numpy", "asyncio", "carrycast.core.model"]),
        (["completion", "bash"], ["rich", "numpy", "asyncio", "pyarrow"]),
        (
            ["pub", "a=1", "--payload-file", "/dev/none", "--node", "x"],
            ["rich", "numpy", "asyncio", "carrycast.node.node"],
        ),
    ],
)
def test_what_is_typed_often_imports_little(arguments: list[str], heavy: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, *arguments], env=environment(), capture_output=True, text=True, check=True
    )
    assert set(heavy).isdisjoint(done.stderr.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_options_and_protocols() -> None:
    script = (
        call("completion", "bash").out
        + """
complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); _carrycast; echo "${COMPREPLY[@]}"; }
complete_line carrycast com
complete_line carrycast run --se
complete_line carrycast run x.toml --protocol epi
complete_line carrycast new pro
"""
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    compare, seed, epidemic, protocol = done.stdout.splitlines()
    assert compare.split() == ["compare", "completion"]
    assert seed.split() == ["--set", "--seed"]
    assert epidemic == "epidemic"
    assert protocol.split()[0] == "protocol"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_given_every_command(shell: str) -> None:
    told = call("completion", shell).out
    assert all(command in told for command in COMMANDS)
