"""A Spark master that is not there is told of in time, before anything starts."""

import socket
from pathlib import Path

import pytest

from carrycast.analysis.spark.master import await_master, check_master
from carrycast.errors import UserError, WorkError
from tests.cli.console import QUICK, spawn


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_a_master_that_does_not_answer_ends_the_command_in_one_line(tmp_path: Path) -> None:
    master = f"spark://127.0.0.1:{free_port()}"
    arguments = ["--protocols", "flooding", "--runs", "1", "--master", master, "--out", str(tmp_path / "out")]
    assert f"no Spark master answers at {master}" in spawn("compare", QUICK, *arguments).refusal(1)


def test_one_master_of_several_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        await_master(f"spark://127.0.0.1:{free_port()},127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize(
    "master", ["spark://127.0.0.1:99999", "k8s://https://127.0.0.1:1", "spark://no.host.invalid:1"]
)
def test_where_nobody_can_be_nobody_answers(master: str) -> None:
    with pytest.raises(WorkError, match="no Spark master answers"):
        await_master(master, 1.0)


@pytest.mark.parametrize("master", ["local", "local[2]", "yarn"])
def test_what_has_no_place_is_not_asked(master: str) -> None:
    await_master(check_master(master))


def test_a_master_without_a_port_is_refused() -> None:
    with pytest.raises(UserError, match="names no port"):
        check_master("spark://somewhere")
