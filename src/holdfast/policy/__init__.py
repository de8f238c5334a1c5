"""May this call happen: pure judgement over resolved facts. Nothing here opens, runs or asks anything."""
