"""Other systems: drivers that train them in their own interpreters, and what is compared."""
