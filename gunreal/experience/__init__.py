"""Where experience lives and how it is referred to: specifications, replay rings, queues, returns."""
