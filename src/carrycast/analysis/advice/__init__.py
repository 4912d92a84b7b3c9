"""Advice: recommends a protocol and its settings for a fleet and an objective."""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.analysis.advice.advisor import advise as advise
    from carrycast.analysis.advice.bound import delivery_bound as delivery_bound
    from carrycast.analysis.advice.deploy import write_node_configurations as write_node_configurations
    from carrycast.analysis.advice.fleet import (
        read_fleet as read_fleet,
        recorded_file as recorded_file,
        recording_tables as recording_tables,
    )
    from carrycast.analysis.advice.objective import parse_objective as parse_objective
    from carrycast.analysis.advice.page import (
        advice_sentences as advice_sentences,
        write_advice_page as write_advice_page,
    )
    from carrycast.analysis.advice.tuning import (
        TunedProtocol as TunedProtocol,
        add_tuned_rivals as add_tuned_rivals,
        tune_experiment as tune_experiment,
        tune_protocols as tune_protocols,
    )

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "advisor": "advise",
        "bound": "delivery_bound",
        "deploy": "write_node_configurations",
        "fleet": "read_fleet recorded_file recording_tables",
        "objective": "parse_objective",
        "page": "advice_sentences write_advice_page",
        "tuning": "TunedProtocol add_tuned_rivals tune_experiment tune_protocols",
    },
)
