"""A protocol that tests put among the registered ones, for as long as a test lasts."""

from tests.routing.courier import Courier as PROTOCOL

EXAMPLE = {"router": {"name": "aodv"}}

__all__ = ["EXAMPLE", "PROTOCOL"]
