"""What can be set, where it comes from, and how addresses and names are read."""

from outbox.settings.values import ConsumerSettings, RelaySettings, Settings, load

__all__ = ["ConsumerSettings", "RelaySettings", "Settings", "load"]
