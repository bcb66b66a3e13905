"""What a run is told: the configuration, its checks, its flags, its units and the folder that keeps it."""
