"""Device runs: environments, network and updates in compiled JAX programs."""
