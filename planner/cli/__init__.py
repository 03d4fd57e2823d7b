"""The command line: the only place where input, output and plans meet."""
