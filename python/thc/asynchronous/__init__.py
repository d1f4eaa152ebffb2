"""Asynchronous training: a server holds the model, workers pull it and push gradients, and nobody waits for anybody."""
