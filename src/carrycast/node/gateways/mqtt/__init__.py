"""The MQTT gateway: clients of MQTT 3.1.1 and 5 publish and subscribe through a node. docs/mqtt.md shows how
to use it, and docs/mqtt-reference.md describes it."""
