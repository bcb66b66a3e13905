"""Agent processes, and the predictors that serve them."""
