"""The network, its losses and its learner. This package handles tensors, but no processes or queues."""
