"""The retention contract in simulated worlds where everything goes wrong; the checkers keep the books of every node."""

from collections.abc import Mapping

import pytest

from carrycast.core.model import Event, EventId
from carrycast.core.parts.log import DurableLog
from carrycast.core.protocol import KeepsEvents
from carrycast.core.protocol.registry import find_protocol, protocol_names
from carrycast.core.protocol.retention import GUARANTEED, MAY_END, RetentionLevel
from carrycast.core.protocol.retention_accounting import RetentionAccounts
from carrycast.errors import UserError
from carrycast.sim.engine.observers.checkers import ViolationError
from carrycast.sim.engine.simulation import Simulation
from carrycast.sim.testing import Net
from carrycast.trace import Level as TraceLevel
from tests.conformance.subjects import FAULTS, scenario_of

KEEPERS = [name for name in protocol_names() if issubclass(find_protocol(name), KeepsEvents)]
every_keeper = pytest.mark.parametrize("name", KEEPERS)
SETTINGS: Mapping[str, dict[str, object]] = {
    "adaptive": {"retry_s": 2.0, "buffer": 3},
    "semi_probabilistic": {"retry_s": 2.0, "buffer": 3},
    "prophet": {"exchange_s": 2.0, "buffer": 3},
    "tree": {"recover_s": 2.0, "recover_buffer": 3},
}


def ledgers(done: Simulation) -> list[RetentionAccounts]:
    return [done.recorder.retention[node] for node in range(done.scenario.nodes)]


@pytest.mark.parametrize("seed", range(2))
@every_keeper
def test_every_node_keeps_what_it_promised_whatever_goes_wrong(name: str, seed: int) -> None:
    """G-3, G-7, G-8, G-21. Half of the nodes crash every 20 s, buffers hold three events, and frames get lost, doubled
    and corrupted."""
    subject = {"name": name, "durable": True, **SETTINGS.get(name, {"buffer": 3})}
    done = Simulation(scenario_of(FAULTS, subject), seed, TraceLevel.METRICS)
    done.start()
    for second in range(1, 61):
        done.advance(float(second))
    assert done.recorder.retention.count_accepted(RetentionLevel.STORED) >= 20
    reasons = set()
    for accounts in ledgers(done):
        assert accounts.imbalance() is None
        for level, account in accounts.accounts().items():
            assert account.accepted == account.kept + sum(account.removed.values())
            reasons |= {(level, reason) for reason in account.removed}
    assert {reason for level, reason in reasons if level in GUARANTEED} <= MAY_END
    # With direct nobody carries for others, and with first contact all that is carried is in custody.
    assert name in ("direct", "first_contact") or (RetentionLevel.CARRIED, "buffer_full") in reasons, (
        "or the buffers were not small enough"
    )


@every_keeper
def test_stored_events_outlast_a_full_buffer_and_a_crash(name: str) -> None:
    """G-2, G-3"""
    settings = {"durable": True, **SETTINGS.get(name, {"buffer": 3})}
    net = Net.contacts([(0, 1, 20.0, 90.0)], name, {"discovery": {"mode": "beacon"}}, 1, **settings)
    net.subscribe(1)
    net.run(2)
    published = [net.publish(0, {"n": n}, lease_s=500.0) for n in range(10)]
    net.run(3)
    net.crash(0)
    net.run(2)
    net.restart(0)
    net.run(80)
    assert sorted(event.id for event in net.list_delivered(1)) == sorted(event.id for event in published)


class Careless:
    """A log whose protocol lets go of what it promised."""

    most_bytes, longest_s, full = 1 << 20, 3600.0, None

    def __init__(self) -> None:
        self.levels: dict[EventId, RetentionLevel] = {}

    def rejection(self, event: Event) -> UserError | None:
        return None

    def level(self, id: EventId) -> RetentionLevel | None:
        return self.levels.get(id)

    def loaded_level(self, id: EventId) -> RetentionLevel | None:
        return RetentionLevel.STORED

    def finish_start(self) -> None: ...

    @property
    def usage(self) -> dict[RetentionLevel, object]:
        return {}


def test_the_books_tell_what_goes_for_another_reason_than_the_contract_names() -> None:
    accounts, log, id = RetentionAccounts(7), Careless(), EventId(7, 1)
    accounts.start(log)  # type: ignore[arg-type]
    assert accounts.finish_start() is None
    log.levels[id] = RetentionLevel.STORED
    accounts.on_store(id)
    del log.levels[id]
    flaw = accounts.on_evict(id, "buffer_full")
    assert flaw is not None
    assert "has a retention guarantee (stored), and was removed as buffer_full" in flaw


def test_the_books_tell_what_is_missing_after_a_restart_and_are_closed_by_name() -> None:
    accounts, log = RetentionAccounts(7), Careless()
    accounts.start(log)  # type: ignore[arg-type]
    accounts.finish_start()
    for number in (1, 2, 3):
        log.levels[EventId(7, number)] = RetentionLevel.STORED
        accounts.on_store(EventId(7, number))
    again = RetentionAccounts(7)
    again.restore(accounts.counters())
    again.start(log)  # type: ignore[arg-type]
    again.on_store(EventId(7, 1))
    assert again.on_drop(EventId(7, 2), "lease_over") is None
    assert again.on_drop(EventId(7, 2), "buffer_full") is not None
    again._removed[RetentionLevel.STORED]["buffer_full"] -= 1
    assert again.finish_start() == "1 stored events are missing"
    assert again.accounts()[RetentionLevel.STORED].removed == {"lease_over": 1, "buffer_full": 0, "store_failed": 1}
    assert again.imbalance() is None


def test_a_run_ends_when_a_protocol_breaks_its_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """G-21"""
    net = Net.line(2, "epidemic", durable=True)
    net.publish(0, lease_s=60.0)
    monkeypatch.setattr(DurableLog, "next_eviction", lambda log, most: next(iter(log._guaranteed), None))
    with pytest.raises(ViolationError, match="has a retention guarantee"):
        net.publish(0, lease_s=60.0)
