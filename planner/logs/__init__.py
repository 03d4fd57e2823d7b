"""What serving engines print when they start: read as untrusted text, and set beside a plan."""
