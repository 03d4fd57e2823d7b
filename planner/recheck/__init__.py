"""Pre-deployment: does a saved plan still hold on the devices as they are now? Pure."""
