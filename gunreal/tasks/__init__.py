"""The auxiliary tasks: the contract (`base`) and the three of UNREAL."""
