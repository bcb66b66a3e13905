"""Agent processes, and the predictors that answer them."""
