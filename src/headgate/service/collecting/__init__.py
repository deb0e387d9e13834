"""Collects what brokers that people have already send into the input logs of streams: MQTT topics, NATS subjects."""
