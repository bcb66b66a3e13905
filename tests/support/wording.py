"""How messages suggest a name. tests/config/test_schema.py alone says in which words."""

from gunreal.config.schema import did_you_mean

MEAN = did_you_mean("").rstrip(" ?")
