"""What a run is told: the configuration, its checks, its flags and its units."""
