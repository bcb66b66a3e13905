"""The auxiliary tasks: the contract (`base`), UNREAL's four, depth prediction and contrastive prediction."""
