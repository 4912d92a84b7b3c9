"""Contacts between nodes: computed exactly from movement, or read from a contact plan."""

from carrycast.sim.contacts.exact import RESOLUTION_S, Intervals, Legs, compute_contacts, contact_intervals
from carrycast.sim.contacts.plan import MAX_DURATION_S, MICROSECONDS, VERSION, VERSION_KEY, ContactChanges, ContactPlan
from carrycast.sim.contacts.statistics import (
    DistributionFit,
    ccdf,
    earliest_arrivals,
    fit_distribution,
    islands_over_time,
    link_churn,
    node_degrees,
)

__all__ = [
    "ContactChanges",
    "ContactPlan",
    "DistributionFit",
    "Intervals",
    "Legs",
    "MAX_DURATION_S",
    "MICROSECONDS",
    "RESOLUTION_S",
    "VERSION",
    "VERSION_KEY",
    "ccdf",
    "compute_contacts",
    "contact_intervals",
    "earliest_arrivals",
    "fit_distribution",
    "islands_over_time",
    "link_churn",
    "node_degrees",
]
