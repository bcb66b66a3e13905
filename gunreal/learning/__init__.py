"""The network, its losses and its learner: tensors only, no processes and no queues."""
