"""Where models, devices and an engine meet a plan, for the command line and for Python alike. Prints nothing."""
