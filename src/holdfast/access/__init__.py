"""Who may come in, and with what: the secret store of a home."""
