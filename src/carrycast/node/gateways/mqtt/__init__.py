"""The MQTT gateway: clients of MQTT 3.1.1 and 5 publish and subscribe through a node. docs/mqtt.md describes it."""
