"""The show around the service: a fake exchange, the course of events, the screen, the summary."""
