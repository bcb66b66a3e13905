"""Experiments: tables of what is compared, the runs that they need, and what comes of them."""
