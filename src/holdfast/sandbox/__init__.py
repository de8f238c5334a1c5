"""Effects on the machine: processes that end with their call and with their driver."""
