"""What other installed packages add to Holdfast, by their entry points."""
