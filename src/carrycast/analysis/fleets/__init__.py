"""Fleets: read files of any known format, clean their rows on Spark, and store them as tables of one schema."""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.analysis.fleets.cleaning import CleaningRules as CleaningRules
    from carrycast.analysis.fleets.columns import parse_columns as parse_columns
    from carrycast.analysis.fleets.contact_lists import PLAN_FILE as PLAN_FILE, SCENARIO_FILE as SCENARIO_FILE
    from carrycast.analysis.fleets.contacts import save_fleet_plan as save_fleet_plan
    from carrycast.analysis.fleets.formats import FORMATS as FORMATS, format_of as format_of
    from carrycast.analysis.fleets.ingestion import ingest as ingest
    from carrycast.analysis.fleets.page import write_contact_page as write_contact_page
    from carrycast.analysis.fleets.points import (
        ReadOptions as ReadOptions,
        check_time_zone as check_time_zone,
        parse_clock as parse_clock,
    )
    from carrycast.analysis.fleets.summary import fleet_sentences as fleet_sentences
    from carrycast.analysis.fleets.writers import write_fleet as write_fleet

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "cleaning": "CleaningRules",
        "columns": "parse_columns",
        "contact_lists": "PLAN_FILE SCENARIO_FILE",
        "contacts": "save_fleet_plan",
        "formats": "FORMATS format_of",
        "ingestion": "ingest",
        "page": "write_contact_page",
        "points": "ReadOptions check_time_zone parse_clock",
        "summary": "fleet_sentences",
        "writers": "write_fleet",
    },
)
