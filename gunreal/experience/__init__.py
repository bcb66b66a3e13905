"""Storage of experience and references to it: specifications, replay rings, queues and returns."""
