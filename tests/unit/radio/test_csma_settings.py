"""What users may write below `[radio]` with `model = "csma"`, and what they are told if they may not."""

import numpy as np
import pytest

from carrycast.core.settings import parse_settings
from carrycast.errors import UserError
from carrycast.sim.contacts.plan import ContactPlan
from carrycast.sim.engine.kernel import Kernel
from carrycast.sim.radio.csma import Vicinity
from carrycast.sim.radio.dot11 import CsmaRadio
from carrycast.sim.radio.station import list_nodes


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"cs_range_m": 100}, "cs_range_m must be at least range_m"),
        ({"interference_range_m": 200}, "interference_range_m must be at least range_m"),
        ({"cw_min": 63, "cw_max": 31}, "cw_max must be at least cw_min"),
        ({"sense_us": 30}, "sense_us must be at most slot_us"),
        ({"preset": "802.11n"}, "preset"),
        ({"rang_m": 100}, "did you mean 'range_m'"),
        ({"retry_limit": 0}, "retry_limit"),
        ({"data_rate_bps": "fast"}, "data_rate_bps"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_in_one_line(table: dict[str, object], told: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_settings(table, CsmaRadio, "here.toml", "radio")
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_surroundings_follow_a_contact_plan() -> None:
    kernel = Kernel()
    a, b = np.array([0, 1]), np.array([1, 2])
    plan = ContactPlan.of(3, 10.0, a, b, np.array([0.0, 2.0]), np.array([5.0, 10.0]))
    vicinity = Vicinity(3, kernel)
    vicinity.follow(plan, 10.0)
    seen = []
    for time_s in (0, 3, 6):
        kernel.run(time_s * 1_000_000)
        seen.append(list_nodes(vicinity.around(1)))
    assert seen == [[0, 1], [0, 1, 2], [1, 2]]
