"""The two commands of tools/emulators.py."""
