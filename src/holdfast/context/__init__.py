"""What the model sees this turn: the conversation from the journal, encoded once, within the window."""
