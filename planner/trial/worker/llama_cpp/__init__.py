"""llama.cpp's child of a trial: starts the server, asks it, reads its log. Imports no torch."""
