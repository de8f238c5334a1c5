"""Tools: what a model may call, and the gates that check each call."""
