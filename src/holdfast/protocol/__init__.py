"""The vocabulary: frozen data that crosses a border or is stored. No behaviour beyond reading itself."""
