"""The network, its losses and its learner. This package handles tensors only, no processes or queues."""
