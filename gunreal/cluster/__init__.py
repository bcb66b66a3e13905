"""Several machines: nodes compute gradients, reducers own the weights, and a coordinator runs the rounds, on Ray."""
