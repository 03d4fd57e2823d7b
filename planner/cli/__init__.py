"""The command line: reads options, asks planner.service, prints, and turns errors into exit codes."""
