"""What the model sees in a turn: the conversation from the journal, encoded once, within the window."""
