"""The comparison with ns-3: the same movement for both, and the same packets delivered where nothing moves."""

from pathlib import Path

import pytest

from benchmarks import ns3_routers
from carrycast.sim.scenario import compute_movement


def test_a_movement_file_has_the_movement_of_the_scenario(tmp_path: Path) -> None:
    path = tmp_path / "moving.ns2"
    scenario = ns3_routers.make_scenario(ns3_routers.MOVEMENTS["5 to 15 m/s"], "aodv")
    _, moving = compute_movement(scenario, 1)
    assert moving is not None
    ns3_routers.write_movement(path, moving)
    _, again = compute_movement(ns3_routers.make_scenario({"model": "ns2", "file": str(path)}, "aodv"), 1)
    assert again is not None
    nodes = range(scenario.nodes)
    for time_s in (0.0, 12.3, 77.7, 149.0):
        for one, other in zip(moving.places(nodes, time_s), again.places(nodes, time_s), strict=True):
            assert one == pytest.approx(other, abs=1e-3)


def test_without_its_tools_the_comparison_says_why_it_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda tool: None)
    monkeypatch.setattr("sys.argv", ["ns3_routers"])
    ns3_routers.main()
    assert capsys.readouterr().out == "skipped: g++ is not installed\n"


@pytest.mark.slow
@pytest.mark.parametrize("router", ns3_routers.ROUTERS)
def test_on_a_static_network_ns3_delivers_the_same_packets(router: str, tmp_path: Path) -> None:
    reason = ns3_routers.missing()
    if reason is not None:
        pytest.skip(reason)
    movement = tmp_path / "static.ns2"
    _, moving = compute_movement(ns3_routers.make_scenario(ns3_routers.MOVEMENTS["static"], "aodv"), 1)
    assert moving is not None
    ns3_routers.write_movement(movement, moving)
    here, size_bytes = ns3_routers.run_here(movement, ns3_routers.ROUTERS[router], 1)
    program = ns3_routers.compile_program(tmp_path)
    there = ns3_routers.run_ns3(program, movement, router, size_bytes, 1, tmp_path)
    assert here.delivery_ratio == pytest.approx(there.delivery_ratio, abs=0.02)
    assert here.data_frames_per_delivery == pytest.approx(there.data_frames_per_delivery, rel=0.1)
