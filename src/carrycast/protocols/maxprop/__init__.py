"""MaxProp: at short contacts the events that are most likely to be delivered go first (Burgess et al. 2006)."""

from carrycast.protocols.maxprop.protocol import MaxProp as PROTOCOL

__all__ = ["PROTOCOL"]
