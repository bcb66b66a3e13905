"""The version of this code. An installed distribution may have another one, or none, if a checkout is run."""

VERSION = "0.1.0"
