"""The trial: a short speculative run on the device, in a child process that alone imports torch."""
