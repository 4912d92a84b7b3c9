"""What one neighbor may take of a node: by the CPU that its messages take, not by the clock."""

import time

from driftcast.live.link.quota import Quota, QuotaSettings

HERE = 7


def work(quota: Quota, cpu_s: float) -> None:
    begun_s = quota.begin(HERE)
    assert begun_s is not None
    until_s = time.thread_time() + cpu_s
    while time.thread_time() < until_s:
        pass
    quota.end(HERE, begun_s)


def test_a_neighbor_has_its_advance_and_then_its_share() -> None:
    quota = Quota(QuotaSettings(share=1.0, advance_s=0.05))
    work(quota, 0.3)
    assert quota.begin(HERE) is None
    assert quota.begin(HERE + 1) is not None
    time.sleep(0.35)
    assert quota.begin(HERE) is not None


def test_time_in_which_the_node_did_not_run_is_charged_to_nobody() -> None:
    quota = Quota(QuotaSettings(share=0.001, advance_s=0.05))
    begun_s = quota.begin(HERE)
    assert begun_s is not None
    time.sleep(0.2)
    quota.end(HERE, begun_s)
    assert quota.begin(HERE) is not None
