"""MQTT 3.1.1 and 5: existing clients publish and subscribe through a node, unchanged. docs/mqtt.md describes it."""

from collections.abc import Mapping

from carrycast.node.gateways import Backing, Opener
from carrycast.node.gateways.mqtt.config import configured_section
from carrycast.node.gateways.mqtt.listener import MqttListener


def configured(table: Mapping[str, object], where: str) -> Opener:
    """What opens a listener as the table `[mqtt]` of a configuration says; a UserError says what is wrong there."""
    section = configured_section(table, where)

    def opener(backing: Backing) -> MqttListener:
        return MqttListener(backing, section)

    return opener
