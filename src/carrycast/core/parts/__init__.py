"""Mechanisms that protocols compose."""

from carrycast.core.parts.buffer import BufferedEvent, LeasedBuffer, LeaseTimer, make_memory, restore_buffer
from carrycast.core.parts.carrier import CarrierProtocol, ReplicatingCarrierProtocol
from carrycast.core.parts.carrier_buffer import LEASE, CarrierBuffer, CarrierSettings
from carrycast.core.parts.channel import Channel, ChannelAck, ChannelLimits, ChannelPacket, ChannelTypes
from carrycast.core.parts.copies import MAX_COPIES, CopyRule, CopyShare
from carrycast.core.parts.exchange_messages import MESSAGES
from carrycast.core.parts.flood import Flood, FloodSettings, RelaySettings
from carrycast.core.parts.fragments import MAX_FRAGMENTS, Assembly, split
from carrycast.core.parts.horizon import COUNTER_BITS, Horizon, KnownNode, next_sequence
from carrycast.core.parts.interests import EVERYTHING, KnownFilters
from carrycast.core.parts.kalman import LevelFilter, ResidualMonitor, steady_variance
from carrycast.core.parts.link_selection import LinkRules, LinkSelection, ReportFormat, SpreadSettings
from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.parts.log import LOG_BYTES, DurableLog, LogBytes, capacity_of
from carrycast.core.parts.mpr import Willingness, select_mprs
from carrycast.core.parts.neighbors import Neighbors
from carrycast.core.parts.outbox import MessagePolicy, PathSelector, PeerOutbox, PeerPath, Undelivered
from carrycast.core.parts.processing import (
    MaxStages,
    ProcessorCalls,
    ProcessorInputs,
    StreamAttributes,
    parse_filter,
    stream_of,
)
from carrycast.core.parts.profiles import ProfileVersion, SubscriberProfiles
from carrycast.core.parts.replicas import KnownReplicas
from carrycast.core.parts.requests import REQUESTS, AnswersFromBuffer, OpenRequests
from carrycast.core.parts.retransmission import UNLIMITED
from carrycast.core.parts.round_trip import RoundTripTime
from carrycast.core.parts.seen import BoundedSeenCache, SeenCache
from carrycast.core.parts.sequence_window import SequenceWindow
from carrycast.core.parts.streets import Segment, StreetGraph, distance_m
from carrycast.core.parts.subscription_exchange import MAX_FILTER_BYTES, MAX_FILTERS, Filters, canonical_filters
from carrycast.core.parts.table_router import RoutedPacket, RoutedPacketInTransit, TableRouter
from carrycast.core.parts.two_hop_neighborhood import MAX_LISTED, HelloLists, NeighborHello, TwoHopNeighborhood

__all__ = [
    "AnswersFromBuffer",
    "Assembly",
    "BoundedSeenCache",
    "BufferedEvent",
    "COUNTER_BITS",
    "CarrierBuffer",
    "CarrierProtocol",
    "CarrierSettings",
    "Channel",
    "ChannelAck",
    "ChannelLimits",
    "ChannelPacket",
    "ChannelTypes",
    "CopyRule",
    "CopyShare",
    "DurableLog",
    "EVERYTHING",
    "Filters",
    "Flood",
    "FloodSettings",
    "HelloLists",
    "Horizon",
    "KnownFilters",
    "KnownNode",
    "KnownReplicas",
    "LEASE",
    "LOG_BYTES",
    "LeaseTimer",
    "LeasedBuffer",
    "LevelFilter",
    "LinkRules",
    "LinkSelection",
    "LocalSubscriptions",
    "LogBytes",
    "MAX_COPIES",
    "MAX_FILTERS",
    "MAX_FILTER_BYTES",
    "MAX_FRAGMENTS",
    "MAX_LISTED",
    "MESSAGES",
    "MaxStages",
    "MessagePolicy",
    "NeighborHello",
    "Neighbors",
    "OpenRequests",
    "PathSelector",
    "PeerOutbox",
    "PeerPath",
    "ProcessorCalls",
    "ProcessorInputs",
    "ProfileVersion",
    "REQUESTS",
    "RelaySettings",
    "ReplicatingCarrierProtocol",
    "ReportFormat",
    "ResidualMonitor",
    "RoundTripTime",
    "RoutedPacket",
    "RoutedPacketInTransit",
    "SeenCache",
    "Segment",
    "SequenceWindow",
    "SpreadSettings",
    "StreamAttributes",
    "StreetGraph",
    "SubscriberProfiles",
    "TableRouter",
    "TwoHopNeighborhood",
    "UNLIMITED",
    "Undelivered",
    "Willingness",
    "canonical_filters",
    "capacity_of",
    "distance_m",
    "make_memory",
    "next_sequence",
    "parse_filter",
    "restore_buffer",
    "select_mprs",
    "split",
    "steady_variance",
    "stream_of",
]
