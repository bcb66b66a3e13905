"""What tools/emulator.py is made of."""
