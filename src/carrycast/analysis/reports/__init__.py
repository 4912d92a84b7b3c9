"""What readers see: figures, tables and one self-contained page."""
