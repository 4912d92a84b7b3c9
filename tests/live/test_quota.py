"""The limit of the CPU time that the messages of one neighbor may take."""

import time
from collections.abc import Callable

from carrycast.node.link.rate_limit import CpuLimiter, QuotaSettings

HERE = 7


def burn(cpu_s: float) -> None:
    until_s = time.thread_time() + cpu_s
    while time.thread_time() < until_s:
        pass


def work(quota: CpuLimiter, cpu_s: float) -> None:
    assert quota.admit(HERE)
    burn(cpu_s)
    quota.stop_measuring()


def test_a_neighbor_has_its_advance_and_then_its_share() -> None:
    quota = CpuLimiter(QuotaSettings(share=1.0, advance_s=0.05), lambda then: None)
    work(quota, 0.3)
    assert not quota.admit(HERE)
    assert quota.admit(HERE + 1)
    time.sleep(0.35)
    assert quota.admit(HERE)


def test_time_in_which_the_node_did_not_run_is_charged_to_nobody() -> None:
    quota = CpuLimiter(QuotaSettings(share=0.001, advance_s=0.05), lambda then: None)
    assert quota.admit(HERE)
    time.sleep(0.2)
    quota.stop_measuring()
    assert quota.admit(HERE)


def test_what_comes_together_is_charged_together_and_when_another_comes_or_the_loop_goes_around() -> None:
    soon: list[Callable[[], None]] = []
    quota = CpuLimiter(QuotaSettings(share=0.001, advance_s=0.05), soon.append)
    assert quota.admit(HERE)
    burn(0.1)
    assert quota.admit(HERE), "until it is settled"
    assert len(soon) == 1
    assert quota.admit(HERE + 1)
    assert not quota.admit(HERE), "another's turn settles it"
    assert quota.admit(HERE + 1), "who is turned away does not end up on another's account"
    burn(0.1)
    soon.pop()()
    assert not quota.admit(HERE + 1)
    assert quota.admit(HERE + 2)
    assert len(soon) == 1, "and again when the loop goes around"
    burn(0.1)
    assert quota.admit(HERE + 3)
    soon.pop()()
    assert not quota.admit(HERE + 2)
    assert quota.admit(HERE + 3), "it did nothing"
