"""The two commands of tools/emulator.py."""
